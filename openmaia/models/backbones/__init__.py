"""Backbones, the models that play the agent: clients of model servers, an in-process vLLM engine, and a replay."""
