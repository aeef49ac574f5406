"""Adaptive feature embeddings (VFL-AFE) as published: a protection that several studies measure."""
