"""One shell under all WebSockets: frames, heart-beat, back-pressure, close codes, listeners."""
