"""Changes of parameters, journaled before they are made, and every way back."""
