"""The words in which servers refuse requests, and what is read from them."""

import json
from typing import Any

import pytest

from openmaia.models.backbones.failures import Failure
from openmaia.models.backbones.wordings import Refusal, image_limit, key_hint, token_limit, waiting_time

TOO_LONG = [
    ("vLLM", "This model's maximum context length is 2048 tokens. However, you requested 5000 tokens (4500 in the messages, 500 in the completion). Please reduce the length of the messages or completion.", (2048, 5000)),
    ("vLLM", "This model's maximum context length is 2048 tokens. However, your prompt contains at least 2049 input tokens, which exceeds this limit even without any output tokens.", (2048, 2049)),
    ("vLLM", "'max_tokens' or 'max_completion_tokens' is too large: 500. This model's maximum context length is 2048 tokens and your request has 1900 input tokens (500 > 2048 - 1900).", None),
    ("vLLM", "The decoder prompt (length 5000) is longer than the maximum model length of 2048. Make sure that `max_model_len` is no smaller than the number of text tokens plus multimodal tokens. For image inputs, the number of image tokens depends on the number of images, and possibly their aspect ratios as well.", (2048, 5000)),
    ("vLLM", "You passed 5000 input tokens and requested 500 output tokens. However, the model's context length is only 2048 tokens, resulting in a maximum input length of 1548 tokens. Please reduce the length of the input prompt.", (2048, 5000)),
    ("vLLM", "Input length (5000) exceeds model's maximum context length (2048).", (2048, 5000)),
    ("SGLang", "Requested token count exceeds the model's maximum context length of 4096 tokens. You requested a total of 5000 tokens: 4500 tokens from the input messages and 500 tokens for the completion.", (4096, 5000)),
    ("SGLang", "The input (5000 tokens) is longer than the model's context length (2048 tokens).", (2048, 5000)),
    ("TGI", "Input validation error: `inputs` must have less than 1024 tokens. Given: 1500", (1024, 1500)),
    ("TGI", "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 2048. Given: 2000 `inputs` tokens and 100 `max_new_tokens`", (2048, 2048)),
    ("llama.cpp", "the request exceeds the available context size, try increasing it", None),
    ("llama.cpp", "request (5000 tokens) exceeds the available context size (4096 tokens), try increasing it", (4096, 5000)),
    ("Ollama", "prompt too long; exceeded max context length by 800 tokens", None),
    ("Ollama", "input length exceeds maximum context length", None),
    ("LM Studio", "Trying to keep the first 5000 tokens when context the overflows. However, the model is loaded with context length of only 4096 tokens, which is not enough.", (4096, 5000)),
    ("LM Studio", "The number of tokens to keep from the initial prompt is greater than the context length. Try to load the model with a larger context length, or provide a shorter input", None),
    ("OpenAI", "Input tokens exceed the configured limit of 272000 tokens. Your messages resulted in 300000 tokens. Please reduce the length of the messages.", (272000, 300000)),
    ("OpenAI", "Your input exceeds the context window of this model. Please adjust your input and try again.", None),
    ("OpenAI", "Invalid 'messages[1].content': string too long. Expected a string with maximum length 1048576, but got a string with length 2000000 instead.", (1048576, 2000000)),
    ("Anthropic", "prompt is too long: 208310 tokens > 200000 maximum", (200000, 208310)),
    ("Anthropic", "input length and `max_tokens` exceed context limit: 199000 + 4096 > 200000, decrease input length or `max_tokens` and try again", (200000, 200000)),
    ("Mistral", "Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum context length", (32768, 40000)),
    ("Groq", "Please reduce the length of the messages or completion.", None),
    ("Together", "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 8193. Given: 9000 `inputs` tokens and 100 `max_new_tokens`", (8193, 9000)),
    ("Fireworks", "The prompt is too long: 50000, model maximum context length: 32767", (32767, 50000)),
    ("OpenRouter", "This endpoint's maximum context length is 32,768 tokens. However, you requested about 50,000 tokens (49,000 of text input, 1,000 in the output). Please reduce the length of either one, or use the \"middle-out\" transform", (32768, 50000)),
    ("Bedrock", "Input is too long for requested model.", None),
    ("Bedrock", "Too many input tokens. Max input tokens: 8192, request input token count: 9000", (8192, 9000)),
    ("LiteLLM", "litellm.ContextWindowExceededError: AzureException - the conversation has 9000 tokens", None),
    ("Gemini", "The input token count (1196265) exceeds the maximum number of tokens allowed (1048575).", (1048575, 1196265)),
    ("xAI", "This model's maximum prompt length is 131072 but the request contains 537812 tokens.", (131072, 537812)),
    ("Cohere", "too many tokens: size limit exceeded by 500 tokens. Try using shorter or fewer inputs. The limit for this model is 4096 tokens.", (4096, 4096)),
    ("Cerebras", "Please reduce the length of the messages or completion. Current length is 9000 while limit is 8192", (8192, 9000)),
    ("Moonshot", "Invalid request: Your request exceeded model token limit: 8192 (requested: 9000)", (8192, 9000)),
    ("MiniMax", "invalid params, context window exceeds limit", None),
    ("Qwen", "Range of input length should be [1, 30720]", (30720, 30720)),
    ("GLM", "Prompt 超长", None),
    ("Copilot", "prompt token count of 5000 exceeds the limit of 4096", (4096, 5000)),
    ("TensorRT-LLM", "Prompt length (5000) exceeds maximum input length (4096).", (4096, 5000)),
    ("ExLlama", "Prompt length 5000 is greater than max_seq_len 4096", (4096, 5000)),
    ("watsonx", "the number of input tokens 5000 cannot exceed the total tokens limit 4096 for this model", (4096, 5000)),
    ("never met", "Sorry, the conversation is too long for me.", None),
    ("never met", "Your prompt of 5000 tokens does not fit: at most 4096 tokens are allowed", (4096, 5000)),
]  # fmt: skip

TOO_MANY_IMAGES = [
    ("vLLM", "At most 4 image(s) may be provided in one prompt.", 6, 4),
    ("vLLM", "At most 4 image(s) may be provided in one prompt. Set `--limit-mm-per-prompt` to increase this limit if the model supports it.", 6, 4),
    ("SGLang", "image data count 6 exceeds limit 4 per request.", 6, 4),
    ("OpenAI", "Too many images in request. Max is 10.", 11, 10),
    ("Azure", "Too many images in request: 11 images provided, but the model supports a maximum of 10 images.", 11, 10),
    ("Anthropic", "messages: too many images and documents: 120 + 0 > 100", 120, 100),
    ("Anthropic", "Too much media: 0 document pages + 107 images > 100", 107, 100),
    ("Groq", "Too many images provided. This model supports up to 5 images", 6, 5),
    ("Mistral", "Number of images in the request (9) exceeds the limit of 8", 9, 8),
    ("Together", "This model supports at most 1 image per request", 6, 1),
    ("Fireworks", "The number of images must be less than or equal to 30, got 31 images", 31, 30),
    ("OpenRouter", "request contains 52 images, exceeding the maximum of 50 allowed per request", 52, 50),
    ("Bedrock", "messages.0.content: 21 images exceed limit of 20", 21, 20),
    ("Ollama", "vision model only supports a single image per message", 6, 1),
    ("Copilot", "too many URL images in request (max 20)", 25, 20),
    ("Gemini", "Please use fewer than 17 images", 20, 17),
    ("TGI", "Input validation error: at most 2 images are supported", 3, 2),
    ("never met", "Only 3 pictures fit into a request", 5, 3),
    ("never met", "Number of images (6) must not be greater than 4", 6, 4),
    ("never met", "Exceeded maximum number of images: 6 (max 4)", 6, 4),
    ("never met", "error code too_many_images", 6, None),
    ("never met", "4 images max", 6, 4),
    ("never met", "too many images", 6, None),
]  # fmt: skip

OTHERS = [
    (400, "max_tokens is too large: 50000. This model supports at most 16384 completion tokens, whereas you provided 50000.", Refusal.REPLY),
    (400, "max_tokens: 300000 > 64000, which is the maximum allowed number of output tokens for claude-sonnet", Refusal.REPLY),
    (400, "`max_tokens` must be less than or equal to `8192`, the maximum value for `max_tokens` is less than the `context_window` for this model", Refusal.REPLY),
    (422, "Input validation error: `max_new_tokens` must be <= 512. Given: 1000", Refusal.REPLY),
    (400, "System role not supported", Refusal.ROLES),
    (422, "Template error: invalid operation: System role not supported (in <string>:1)", Refusal.ROLES),
    (500, "Error rendering prompt with jinja template: \"System role not supported\"", Refusal.ROLES),
    (400, "Unsupported value: 'messages[0].role' does not support 'system' with this model.", Refusal.ROLES),
    (400, "Developer instruction is not enabled for models/gemma-3-27b-it", Refusal.ROLES),
    (400, "Only user and assistant roles are supported!", Refusal.ROLES),
    (400, "Conversation roles must alternate user/assistant/user/assistant/...", Refusal.ROLES),
    (400, "After the optional system message, conversation roles must alternate user and assistant roles except for tool calls and results.", Refusal.ROLES),
    (400, "Unexpected role 'user' after role 'tool'", Refusal.ROLES),
    (400, "invalid params, invalid message role: system (2013)", Refusal.ROLES),
    (422, "body.messages.0.role: Input should be 'user' or 'assistant' (literal_error)", Refusal.ROLES),
    (400, "Failed to deserialize: messages[0]: unknown variant `system`, expected `user` or `assistant`", Refusal.ROLES),
    (400, "System messages are not allowed for this model", Refusal.ROLES),
    (403, "openai/gpt-4o requires moderation on OpenAI. Your input was flagged for \"violence\". No credits were charged.", Refusal.CONTENT),
    (400, "The response was filtered due to the prompt triggering Azure OpenAI's content management policy.", Refusal.CONTENT),
    (400, "Invalid prompt: your prompt was flagged as potentially violating our usage policy.", Refusal.CONTENT),
    (400, "Output blocked by content filtering policy", Refusal.CONTENT),
    (400, "<400> InternalError.Algo.DataInspectionFailed: Input data may contain inappropriate content.", Refusal.CONTENT),
    (451, "blocked by guardrail", Refusal.CONTENT),
    (429, "You exceeded your current quota, please check your plan and billing details.", Refusal.NO_CREDIT),
    (400, "Your credit balance is too low to access the Anthropic API.", Refusal.NO_CREDIT),
    (402, "This request requires more credits, or fewer max_tokens.", Refusal.NO_CREDIT),
    (429, "You exceeded your current quota, please check your plan and billing details. Please retry in 34.07s.", None),
    (429, "Rate limit reached for gpt-4o on tokens per min (TPM): Limit 30000, Used 29000, Requested 2000. Please try again in 2s.", None),
    (429, "Request too large for gpt-4o on tokens per min (TPM): Limit 30000, Requested 40000. The input or output tokens must be reduced in order to run successfully.", Refusal.CONTEXT),
    (400, "this model does not support images", Refusal.NO_IMAGES),
    (500, "image input is not supported - hint: if this is unexpected, you may need to provide the mmproj", Refusal.NO_IMAGES),
    (404, "No endpoints found that support image input", Refusal.NO_IMAGES),
    (400, "some/model is not a multimodal model", Refusal.NO_IMAGES),
    (400, "Failed to deserialize the JSON body: messages[1]: unknown variant `image_url`, expected `text`", Refusal.NO_IMAGES),
    (400, "At most 0 image(s) may be provided in one prompt.", Refusal.NO_IMAGES),
    (400, "role 'system' isn't supported", Refusal.ROLES),
    (400, "Invalid value: 'system'. Supported values are: 'user' and 'assistant'.", Refusal.ROLES),
    (400, "'system' is not one of ['user', 'assistant'] - 'messages.0.role'", Refusal.ROLES),
    (400, "messages with role 'system' cannot be used", Refusal.ROLES),
    (400, "Cannot process more than 4 images", Refusal.IMAGES),
    (400, "Could not process image", None),
    (400, "Failed to deserialize the JSON body: messages[1]: invalid type: sequence, expected a string", Refusal.NO_IMAGES),
    (400, "The prompt with 12 images is too long: 9000 tokens > 8192", Refusal.CONTEXT),
    (400, "The prompt (1881 tokens) does not fit the window (1200)", Refusal.CONTEXT),
    (400, "Request payload size exceeds the limit: 20971520 bytes.", Refusal.CONTEXT),
    (400, "Range of max_tokens should be [1, 2000]", Refusal.REPLY),
    (400, "The maximum tokens you requested exceeds the model limit of 4096.", Refusal.REPLY),
    (400, "Content Exists Risk", Refusal.CONTENT),
    (404, "No endpoints available matching your guardrail restrictions and data policy.", None),
    (400, "temperature must be less than or equal to 1", None),
    (422, "[{'type': 'less_than_equal', 'loc': ['body', 'temperature'], 'msg': 'Input should be less than or equal to 1'}]", None),
    (400, "messages.58.content.2.image.source.base64: image exceeds 5 MB maximum: 6500712 bytes > 5242880 bytes", None),
    (400, "Unsupported value: 'temperature' does not support 0.7 with this model.", None),
    (400, "Your organization must be verified to stream this model.", None),
    (401, "Token expired: the limit is over", None),
    (403, "Forbidden", None),
    (404, "The model `m` does not exist or you do not have access to it.", None),
    (503, "The context of the server is loading, too many requests", None),
]  # fmt: skip

PARAMETERS = ["max_tokens", "temperature", "top_p", "seed", "stream", "stream_options"]
CALLS = [*PARAMETERS, "tools", "tool_choice", "stop"]
GRAMMAR = [*PARAMETERS, "grammar", "structured_outputs"]
PARAMETER_REFUSALS = [
    (400, "Your organization must be verified to stream this model.", CALLS, "stream"),
    (400, "Streaming is not supported for this model", CALLS, "stream"),
    (400, "Unsupported value: 'stream' does not support true with this model. Only the default (false) value is supported.", CALLS, "stream"),
    (422, "[{'type': 'extra_forbidden', 'loc': ['body', 'stream_options'], 'msg': 'Extra inputs are not permitted'}]", CALLS, "stream_options"),
    (400, "Only non-streaming requests are supported", CALLS, "stream"),
    (400, "stream must be false", CALLS, "stream"),
    (400, "This model does not stream.", CALLS, "stream"),
    (501, "streaming is not implemented", CALLS, "stream"),
    (403, "Your organization must be verified to stream this model.", CALLS, "stream"),
    (400, "max_tokens must not be used with this model, use max_completion_tokens", CALLS, "max_tokens"),
    (400, "invalid temperature: only 1 is allowed for this model", CALLS, "temperature"),
    (400, "`temperature` may only be set to 1 when thinking is enabled.", CALLS, "temperature"),
    (400, "Unsupported parameter: 'stop' is not supported with this model.", CALLS, "stop"),
    (422, "[{'type': 'extra_forbidden', 'loc': ['body', 'seed'], 'msg': 'Extra inputs are not permitted'}]", CALLS, "seed"),
    (400, "Unrecognized request argument supplied: seed", CALLS, "seed"),
    (400, "property 'seed' is unsupported", CALLS, "seed"),
    (400, "`temperature` and `top_p` cannot both be specified for this model.", CALLS, "top_p"),
    (400, "`temperature` is deprecated for this model.", CALLS, "temperature"),
    (400, "registry.ollama.ai/library/gemma:latest does not support tools", CALLS, "tools"),
    (404, "No endpoints found that support tool use.", CALLS, "tools"),
    (400, "deepseek-reasoner does not support this tool_choice", CALLS, "tool_choice"),
    (400, "\"auto\" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set", CALLS, "tool_choice"),
    (500, "litellm.APIConnectionError: the model does not support tools", CALLS, "tools"),
    (400, "Unrecognized request arguments supplied: grammar, structured_outputs", GRAMMAR, "structured_outputs"),
    (500, "unexpected error: the stream was closed", CALLS, None),
    (404, "unknown model; streaming", CALLS, None),
    (400, "temperature must be less than or equal to 1", CALLS, None),
    (400, "streaming responses are disabled for this deployment", CALLS, "stream"),
    (400, "set stream to false", CALLS, "stream"),
    (405, "Streaming is not supported", CALLS, "stream"),
    (400, "'seed' is not a recognized parameter", CALLS, "seed"),
    (400, "Invalid tool_choice: 'required'. Only 'none','auto' supported", CALLS, "tool_choice"),
]  # fmt: skip


def failed(status: int, message: str, **fields: Any) -> Failure:
    return Failure(status=status, body=json.dumps({"error": {"message": message, **fields}}))


@pytest.mark.parametrize(("server", "message", "limits"), TOO_LONG)
def test_a_conversation_that_is_too_long_is_recognised_with_its_limit(server: str, message: str, limits: Any):
    assert failed(400, message).refusal is Refusal.CONTEXT
    if limits:
        assert token_limit(message) == limits


@pytest.mark.parametrize(("server", "message", "sent", "limit"), TOO_MANY_IMAGES)
def test_a_limit_of_images_is_recognised_with_its_number(server: str, message: str, sent: int, limit: int | None):
    assert failed(400, message).refusal is Refusal.IMAGES
    assert image_limit(message, sent) == limit


@pytest.mark.parametrize(("status", "message", "refusal"), OTHERS)
def test_refusals_are_told_apart(status: int, message: str, refusal: Refusal | None):
    assert failed(status, message).refusal is refusal


@pytest.mark.parametrize(("status", "message", "sent", "name"), PARAMETER_REFUSALS)
def test_the_refused_parameter_is_found(status: int, message: str, sent: list[str], name: str | None):
    assert failed(status, message).refused(sent) == name


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("Please try again in 7.66s.", 7.66),
        ("Please try again in 1m2.5s.", 62.5),
        ("Please try again in 250ms", 0.25),
        ("Rate limit is exceeded. Try again in 24 seconds.", 24),
        ("Please retry after 24 seconds.", 24),
        ('{"@type": "RetryInfo", "retryDelay": "34s"}', 34),
        ("try again in 2h", 7200),
        ("try again in 5 minutes", 300),
        ("try again later", None),
        ("slow down", None),
    ],
)
def test_the_waiting_time_is_read_from_a_message(text: str, seconds: float | None):
    assert waiting_time(text) == seconds


def test_a_message_that_nobody_knows_names_the_key_that_it_may_be_about():
    keys = ["backbone.model", "backbone.images_per_prompt", "backbone.temperature"]
    assert key_hint("your images are ugly", keys) == "backbone.images_per_prompt"
    assert key_hint("no", keys) == "backbone.model, backbone.images_per_prompt, backbone.temperature"


@pytest.mark.parametrize(
    ("message", "limit"),
    [
        ("maximum context length is 128K tokens", 128_000),
        ("8 192 tokens max", 8192),
        ("gpt-4-0613 takes a maximum of 8192 tokens, got 9000", 8192),
        ("too many tokens: 40000/32768", 32768),
    ],
)
def test_a_limit_of_tokens_is_read_in_any_form(message: str, limit: int):
    assert (token_limit(message) or (0, 0))[0] == limit


def test_a_limit_of_images_is_not_another_number():
    assert image_limit("The request has 12 images in 9 messages; the limit is 5", 12) == 5


def test_a_time_to_wait_is_read_in_any_form():
    assert [waiting_time(each) for each in ("try again in about 3 minutes", "Retry in 2 hrs")] == [180, 7200]
