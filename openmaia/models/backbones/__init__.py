"""Backbones: clients of model servers, an in-process vLLM engine, and a replay."""
