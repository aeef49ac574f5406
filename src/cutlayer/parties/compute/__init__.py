"""How a step is computed: devices, groups of rows and their threads, rows on a GPU, readings."""
