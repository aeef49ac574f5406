"""How a step is computed: devices, columns that are read ahead, rows on a GPU, readings."""
