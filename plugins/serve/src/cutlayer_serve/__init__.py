"""Online predictions of a trained run: the verb `cutlayer serve`, at the active party over HTTP."""
