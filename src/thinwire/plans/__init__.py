"""Plans: which tensor gets which codec, memory and route, and what that sends, exactly."""
