"""Published and repaired defences of labels under the default audit, which attacks the whole run."""
