"""Jobs for NVFlare: it starts, aborts and logs the parties of a job, each at its site; tensors take our own links."""
