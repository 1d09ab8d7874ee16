"""The commands behind the command line, one function each. `registry` finds them."""
