"""Writes chat.json: chat templates in the manner of published ones, and the texts that transformers
makes of conversations by them, or null where it raises an error.

    pip install transformers==5.24.0 jinja2==3.1.6
    python make_chat.py
"""

import json
from pathlib import Path

from transformers.utils.chat_template_utils import render_jinja_template

TEMPLATES = {
    # ChatML, with a default instruction
    "chatml": """{% for m in messages %}{% if loop.first and m['role'] != 'system' %}<|im_start|>system
Be brief.<|im_end|>
{% endif %}{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>\\n' }}{% endfor %}
{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}""",
    # turns must alternate, the instruction joins the first of them
    "inst": """{{- bos_token }}
{%- if messages[0].role == 'system' %}
    {%- set system = messages[0].content | trim + '\\n\\n' %}
    {%- set rest = messages[1:] %}
{%- else %}
    {%- set system = '' %}
    {%- set rest = messages %}
{%- endif %}
{%- for message in rest %}
    {%- if (message.role == 'user') != (loop.index0 % 2 == 0) %}
        {{- raise_exception('roles must alternate, not ' ~ message.role) }}
    {%- endif %}
    {%- if message.role == 'user' %}
        {{- '[INST] ' + (system if loop.index0 == 0 else '') + message.content.strip() + ' [/INST]' }}
    {%- else %}
        {{- ' ' + message.content.strip() + eos_token }}
    {%- endif %}
{%- endfor %}""",
    # tools as JSON, calls of tools, parts of contents
    "tools": """{%- if tools %}
# Tools
{% for tool in tools %}
{{ tool | tojson }}
{% endfor %}
{{ tools | tojson(indent=4) }}
{%- endif %}
{%- for m in messages %}
{{- '\\n<|' ~ m.role ~ '|>' }}
{%- if m.content is string %}
{{- m.content }}
{%- elif m.content is not none %}
{%- for part in m.content %}
{%- if part.type == 'text' %}{{ part['text'] | trim }}{% else %}<{{ part.type }}>{% endif %}
{%- endfor %}
{%- endif %}
{%- if m.tool_calls is defined and m.tool_calls %}
{%- for call in m.tool_calls %}
{%- set f = call.function if call.function is defined else call %}
<call>{"name": "{{ f.name }}", "arguments": {{ f.arguments | tojson }}}</call>
{%- for key, value in f.arguments.items() %}
[{{ key }}={{ value }}]
{%- endfor %}
{%- endfor %}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
<|assistant|>
{%- endif %}""",
    # thoughts of earlier turns are left out
    "thinking": """{%- set ns = namespace(last=-1, found=false) %}
{%- for m in messages[::-1] %}
    {%- set index = (messages | length - 1) - loop.index0 %}
    {%- if m.role == "user" and not ns.found and not m.content.startswith("<result>") %}
        {%- set ns.last = index %}
        {%- set ns.found = true %}
    {%- endif %}
{%- endfor %}
{%- for m in messages %}
    {%- set content = m.content if m.content is string else '' %}
    {%- if m.role == "assistant" and "</think>" in content %}
        {%- set thought = content.split("</think>")[0].rstrip("\\n").split("<think>")[-1].lstrip("\\n") %}
        {%- set content = content.split("</think>")[-1].lstrip("\\n") %}
        {%- if loop.index0 > ns.last %}
            {%- set content = "<think>\\n" + thought.strip("\\n") + "\\n</think>\\n\\n" + content %}
        {%- endif %}
    {%- endif %}
    {{- '<' + m.role.upper() + '>' + content + '\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<ASSISTANT>' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}""",
    # renamed roles, marks for training, loop controls
    "gemma": """{{ bos_token }}
{%- for m in messages -%}
    {%- if m['role'] == 'system' -%}{%- continue -%}{%- endif -%}
    {%- if loop.index > 6 -%}{%- break -%}{%- endif -%}
    {%- set role = 'model' if m['role'] == 'assistant' else m['role'] -%}
    <start_of_turn>{{ role }}
{% generation %}{{ m['content'] | trim if m['content'] is string else '' }}{% endgeneration %}<end_of_turn>
{% endfor %}
{%- if add_generation_prompt -%}
<start_of_turn>model
{% endif -%}""",
    # macros, filters and tests
    "filters": """{%- macro header(role) -%}
<|{{ role | upper }}|>
{%- endmacro %}
{%- for m in messages if m.content is string %}
    {{- header(m.role) }}
    {%- set words = m.content.split() %}
{{ words | length }} {{ words | join("_") }} {{ m.content | replace("e", "3") | lower }}
{{ m.content[:5] }}|{{ m.content[-3:] }}|{{ m.content | length }}|{{ loop.revindex }}|{{ loop.last }}
{{ m.role in ["user", "tool"] }}|{{ m.nothing is defined }}|{{ m.content | first | default("?") }}
{{ "yes" if m.content and not m.content.endswith("?") else "no" }}|{{ 7 // 2 }}|{{ 7 % 4 }}|{{ 1.0 }}|{{ none }}
    {%- endfor %}
{%- for role, group in messages | groupby("role") %} {{ role }}:{{ group | length }}{% endfor %}
{{ messages | map(attribute="role") | unique | list | tojson }}
{{ {"b": 1, "a": [1.5, true, none, "é<'"]} | tojson }}
{{ messages | selectattr("role", "equalto", "user") | list | length }}""",
}

CHATS = [
    [{"role": "user", "content": "Hello, how are you?"}],
    [
        {"role": "system", "content": " Speak like a pirate. "},
        {"role": "user", "content": "Who are you?\n"},
        {"role": "assistant", "content": "<think>\nA pirate.\n</think>\n\nArr!"},
        {"role": "user", "content": " <b>& \"quoted\" ünïcödé 漢字</b> "},
    ],
    [
        {"role": "user", "content": "1"},
        {"role": "user", "content": "2"},
        {"role": "assistant", "content": ""},
    ],
    [
        {"role": "user", "content": "The weather in Oslo?"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {
                    "type": "function",
                    "function": {
                        "name": "weather",
                        "arguments": {"city": "Oslo", "days": 2, "share": 0.5, "z": {}, "a": []},
                    },
                }
            ],
        },
        {"role": "tool", "content": "<result>cold</result>"},
    ],
    [
        {
            "role": "user",
            "content": [{"type": "image"}, {"type": "text", "text": " What is this? "}],
        },
        {"role": "assistant", "content": "A cat."},
    ],
]
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "The weather at <a place> & 'time'",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string", "enum": ["Oslo", "Tromsø"]}},
                "required": ["city"],
            },
        },
    }
]
TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}


def main():
    cases = []
    for name, template in TEMPLATES.items():
        for i, chat in enumerate(CHATS):
            tools = TOOLS if i % 2 == 1 else None
            more = {"enable_thinking": False} if i == 1 else {}
            for prompt in (False, True):
                try:
                    texts, _ = render_jinja_template(
                        conversations=[chat],
                        tools=tools,
                        chat_template=template,
                        add_generation_prompt=prompt,
                        **TOKENS,
                        **more,
                    )
                    text = texts[0]
                except Exception as error:
                    text = None
                    print(name, i, error)
                case = {"template": name, "messages": json.dumps(chat), "prompt": prompt}
                variables = {"tools": tools} if tools else {}
                variables |= more
                case["variables"] = {key: json.dumps(value) for key, value in variables.items()}
                cases.append({**case, "text": text})
    content = {"templates": TEMPLATES, "cases": cases}
    path = Path(__file__).parent / "chat.json"
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")
    print(len(cases))


main()
