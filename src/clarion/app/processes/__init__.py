"""Several processes on one machine that share the listeners: `clarion serve --processes N`."""
