"""The losses and the time of 50 steps of peft and PyTorch, beside those of `finetune`.

    pip install torch transformers peft safetensors gguf
    quantize MODEL.gguf --type f32 --out work/f32.gguf
    python3 finetune.py work four.jsonl            # writes work/model, work/init and work/peft.json
    finetune --model work/model --adapter work/init --data four.jsonl --length 128 --epochs 50 \\
        --batch 4 --held-out 0 --report 50 --log work/ours.csv --output work/adapter
    python3 finetune.py work                       # compares the losses

`four.jsonl` has four lines {"text": ..} of more than 128 tokens.
"""

import csv, json, math, pathlib, resource, sys, time

work = pathlib.Path(sys.argv[1])
if len(sys.argv) == 2:
    theirs = json.loads((work / "peft.json").read_text())
    ours = [float(row["loss"]) for row in csv.DictReader((work / "ours.csv").open())]
    print(f"{len(ours)} steps, largest difference {max(abs(a - b) for a, b in zip(theirs, ours)):.1e}")
    sys.exit()

import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

torch.set_num_threads(2)
torch.manual_seed(1)
read = AutoModelForCausalLM.from_pretrained(work, gguf_file="f32.gguf", dtype=torch.float32)
tokenizer = AutoTokenizer.from_pretrained(work, gguf_file="f32.gguf")
sizes = ["vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
         "num_key_value_heads", "max_position_embeddings", "rms_norm_eps", "rope_parameters"]
config = LlamaConfig(**{name: getattr(read.config, name) for name in sizes}, tie_word_embeddings=True)
model = LlamaForCausalLM(config)
model.load_state_dict(read.state_dict())
folder = work / "model"
folder.mkdir(exist_ok=True)
tensors = {name: value.contiguous() for name, value in model.state_dict().items() if name != "lm_head.weight"}
save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
config.save_pretrained(folder)
tokenizer.save_pretrained(folder)
lora = LoraConfig(r=8, lora_alpha=16, target_modules="all-linear", task_type="CAUSAL_LM")
model = get_peft_model(model, lora)
model.save_pretrained(work / "init")

lines = [json.loads(line)["text"] for line in open(sys.argv[2])]
x = torch.tensor([tokenizer(line)["input_ids"][:128] for line in lines])  # (4, 128)
params = [p for p in model.parameters() if p.requires_grad]
top, low, warm, steps = 2e-4, 2e-5, 2, 50
optimizer = torch.optim.AdamW(params, lr=top, weight_decay=0)
losses, times = [], []
for step in range(steps):
    start = time.time()
    part = math.pi * (step - warm) / (steps - warm)
    lr = top * (step + 1) / (warm + 1) if step < warm else low + (top - low) * (1 + math.cos(part)) / 2
    for group in optimizer.param_groups:
        group["lr"] = lr
    loss = model(input_ids=x, labels=x).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_(params, 1.0)
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.item())
    times.append(time.time() - start)
(work / "peft.json").write_text(json.dumps(losses))
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
print(f"{sorted(times)[steps // 2]:.2f} s a step, {peak:.2f} GB at most, torch {torch.__version__}")
