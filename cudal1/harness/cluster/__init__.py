"""Judge on devices of other machines, through Ray."""
