"""What a job printed, without what looks like a secret (8.4)."""

import time

import pytest

from fairlease.runtime.redaction import MASK, redacted

LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
TOKEN = (LETTERS * 2)[:36]
KEY = "-----BEGIN RSA " + "PRIVATE KEY-----\nMIIEowIBAAKCAQEA\nqwertz\n-----END RSA " + "PRIVATE KEY-----"
OPEN_KEY = "-----BEGIN OPENSSH " + "PRIVATE KEY-----\nb3BlbnNzaC1rZXk"

SECRETS = [
    pytest.param(f"before\n{KEY}\nbehind", f"before\n{MASK}\nbehind", id="the whole block of a private key"),
    pytest.param(f"before\n{OPEN_KEY}\nmore", f"before\n{MASK}", id="a private key that ends behind the text"),
    pytest.param(KEY.partition("\n")[2] + "\nbehind", f"{MASK}\nbehind", id="a private key that began before the text"),
    pytest.param(
        "git clone https://ann:hunter2@host/x.git", f"git clone https://{MASK}@host/x.git", id="a password in a URL"
    ),
    pytest.param("redis://:hunter2@cache:6379/0", f"redis://{MASK}@cache:6379/0", id="a password without a user"),
    pytest.param(f"https://{TOKEN}@host/x.git", f"https://{MASK}@host/x.git", id="a token in a URL"),
    pytest.param(
        "GET /b?X-Amz-Signature=0a1b2c&part=7", f"GET /b?X-Amz-Signature={MASK}&part=7", id="what signs an address"
    ),
    pytest.param("https://x/y?a=1&access_token=abc", f"https://x/y?a=1&access_token={MASK}", id="a token in a query"),
    pytest.param(
        "https://hooks.slack.com/services/T0/B0/abcdef", f"https://hooks.slack.com/services/{MASK}", id="a webhook"
    ),
    pytest.param("Authorization: Bearer abc.def-ghi", f"Authorization: Bearer {MASK}", id="a bearer header"),
    pytest.param("authorization: Basic YW5uOng=", f"authorization: Basic {MASK}", id="a basic header"),
    pytest.param(
        '{"Authorization": "Bearer abcdefgh"}', f'{{"Authorization": "Bearer {MASK}"}}', id="a header in JSON"
    ),
    pytest.param("sent bearer abcdefghijk to it", f"sent bearer {MASK} to it", id="a bearer token in a sentence"),
    pytest.param("Set-Cookie: session=abc; Path=/", f"Set-Cookie: {MASK}", id="a cookie"),
    pytest.param("password=hunter2", f"password={MASK}", id="a password by its name"),
    pytest.param("DB_PASSWORD: 'two words', x", f"DB_PASSWORD: {MASK}, x", id="a quoted password"),
    pytest.param('{"api_key": "abc", "n": 1}', f'{{"api_key": {MASK}, "n": 1}}', id="a key in JSON"),
    pytest.param("WANDB_API_KEY=0123abcd done", f"WANDB_API_KEY={MASK} done", id="a key of the environment"),
    pytest.param("AWS_SECRET_ACCESS_KEY=a/b+c", f"AWS_SECRET_ACCESS_KEY={MASK}", id="a secret key of the environment"),
    pytest.param("client_secret = s3cr3t", f"client_secret = {MASK}", id="a secret with spaces around"),
    pytest.param("password=12345678", f"password={MASK}", id="a password of digits"),
    pytest.param("password: -7", f"password: {MASK}", id="a password that is a number"),
    pytest.param(f"secret_key={'1' * 32}", f"secret_key={MASK}", id="a secret key of digits"),
    pytest.param('{"api_key": 987654321, "n": 1}', f'{{"api_key": {MASK}, "n": 1}}', id="a number as a key in JSON"),
    pytest.param("secret: 42%", f"secret: {MASK}", id="a secret that looks like a share"),
    pytest.param(f'password="{TOKEN * 20}", x', f"password={MASK}, x", id="a long quoted password"),
    pytest.param('password="two words\nmore', f"password={MASK}\nmore", id="a quoted password whose end was cut off"),
    pytest.param(r'"api_key": "ab\"cd", x', f'"api_key": {MASK}, x', id="a key with a quotation mark in it"),
    pytest.param(r"{\"password\": \"hunter2\"}", r"{\"password\": " + MASK + "}", id="a password in JSON in JSON"),
    pytest.param(r"{\'token\': \'abcdefgh12\'}", r"{\'token\': \'" + MASK + r"\'}", id="a token in a text in a text"),
    pytest.param(
        r"{\"Authorization\": \"Basic YW5uOng=\"}",
        r"{\"Authorization\": \"Basic " + MASK + '"}',
        id="a header in JSON in JSON",
    ),
    pytest.param("Authorization: SSWS 00abcd, x", f"Authorization: {MASK}, x", id="a header of another scheme"),
    pytest.param("authorization=00abcd", f"authorization={MASK}", id="a header without a scheme"),
    pytest.param("HF_TOKEN=abcdefgh12", f"HF_TOKEN={MASK}", id="a token by its name"),
    pytest.param("run --token abcdef -v", f"run --token {MASK} -v", id="a token as an option"),
    pytest.param("login --password hunter2", f"login --password {MASK}", id="a password as an option"),
    pytest.param("AccountKey=abc==;x", f"AccountKey={MASK};x", id="a key of a connection string"),
    pytest.param("got AKIA" + "ABCDEFGHIJKLMNOP.", f"got {MASK}.", id="an AWS access key"),
    pytest.param(f"ghp_{TOKEN}", MASK, id="a GitHub token"),
    pytest.param(f"glpat-{TOKEN[:20]}", MASK, id="a GitLab token"),
    pytest.param(f"hf_{TOKEN[:34]}", MASK, id="a Hugging Face token"),
    pytest.param(f"sk-{TOKEN}", MASK, id="an API key"),
    pytest.param(f"sk-ant-api03-{TOKEN}", MASK, id="an API key with a prefix"),
    pytest.param(f"npm_{TOKEN}", MASK, id="an npm token"),
    pytest.param("xoxb-1234567890-abc", MASK, id="a Slack token"),
    pytest.param(f"eyJ{TOKEN}.eyJ{TOKEN}.{TOKEN}", MASK, id="a JSON Web Token"),
]


@pytest.mark.parametrize(("text", "left"), SECRETS)
def test_what_looks_like_a_secret_goes(text: str, left: str) -> None:
    # rule: 8.4
    assert redacted(text) == left


@pytest.mark.parametrize(
    "text",
    [
        "step 100 tokens: 4096 tokens/s=1234567.8 num_tokens=1e9",
        "max_new_tokens=2048, pad_token: 0, eos_token=</s>",
        "tokenizer: gpt2, tokens per second: 12 k",
        "key=value monkey=banana",
        "RuntimeError: CUDA error: device-side assert triggered",
        "loaded https://host:8080/models/x@main",
        "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        "",
    ],
)
def test_what_training_code_prints_all_day_stays(text: str) -> None:
    # rule: 8.4
    assert redacted(text) == text


def test_a_credential_that_is_known_elsewhere_takes_its_whole_line_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    # rule: 8.4
    monkeypatch.setattr("fairlease.runtime.redaction.kind_of", lambda line: "an odd key" if "odd" in line else "")
    assert redacted("one\nodd thing\nthree") == "one\n[a line with an odd key was redacted]\nthree"


@pytest.mark.parametrize(
    "piece",
    [
        *("a", "://", "password=", "-----BEGIN ", "eyJ", "token:", "https://a", "Bearer ", " ", "\\", '"'),
        *('password="', "password='\\", 'secret\\":\\"', "authorization: ", "authorization: a "),
    ],
)
def test_no_text_takes_long(piece: str) -> None:
    # rule: 8.4
    text = piece * (64 * 1024 // len(piece))
    begun_s = time.process_time()
    redacted(text)
    assert time.process_time() - begun_s < 5, "as quick as its length asks, whatever a job prints"
