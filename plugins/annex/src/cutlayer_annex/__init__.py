"""The annex of a run for a data-protection impact assessment: `cutlayer report --for dpia`."""
