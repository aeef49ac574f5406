"""Label-independent releases against end-to-end training: utility, label leak and feature leak."""
