"""An event and a person → a verdict for each channel, with its reason. Pure rules over facts."""
