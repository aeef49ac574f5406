"""How much embeddings depend on labels or inputs."""
