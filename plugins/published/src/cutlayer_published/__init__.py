"""Methods as their papers have them, which no default of Cutlayer uses: studies measure them against those."""
