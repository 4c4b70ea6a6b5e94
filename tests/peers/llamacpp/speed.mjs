// Processor time of llama.cpp for a prompt of 512 tokens and for 64 generated ones, by one thread. Called by speed.py.
//   node speed.mjs MODEL.gguf
import {getLlama, LlamaLogLevel} from "node-llama-cpp";

const PROMPT = 512, GENERATED = 64;
const llama = await getLlama({gpu: false, build: "never", skipDownload: true, maxThreads: 1, logLevel: LlamaLogLevel.disabled});
const model = await llama.loadModel({modelPath: process.argv[2]});
const context = await model.createContext({contextSize: 1024, batchSize: PROMPT, threads: 1, flashAttention: true});
const sequence = context.getSequence();
const ids = Array.from({length: PROMPT}, (_, i) => 1000 + (i * 7919) % 20000);
const milliseconds = () => { const used = process.cpuUsage(); return (used.user + used.system) / 1e3; };

// The first turn brings the file and the code to memory.
let prompt, generation;
for (let turn = 0; turn < 2; turn++) {
    await sequence.clearHistory();
    let before = milliseconds();
    await sequence.evaluateWithoutGeneratingNewTokens(ids);
    prompt = (milliseconds() - before) / PROMPT;
    // As ours does: a short context, and no token ends it.
    await sequence.clearHistory();
    await sequence.evaluateWithoutGeneratingNewTokens([504]);
    before = milliseconds();
    let token = 253;
    for (let n = 0; n < GENERATED; n++) {
        const [last] = await sequence.controlledEvaluate([[token, {generateNext: {token: true, options: {temperature: 0}}}]]);
        token = last.next.token;
    }
    generation = (milliseconds() - before) / GENERATED;
}
process.stdout.write(JSON.stringify({prompt, generation}) + "\n", () => process.exit(0));
