"""Plans: which tensor gets which codec, error feedback and route, and what that sends, exactly."""
