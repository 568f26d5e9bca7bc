import assert from "node:assert/strict";
import { test } from "node:test";
import type { RunSettings } from "../../src/api/types";
import { en } from "../../src/i18n/en";
import { settings, toEntered, toRunSettings } from "../../src/train/settings";
import { demoLength } from "../../src/home/length";

test("every setting of the table has a name and a sentence, and the other way round", () => {
  assert.deepEqual(settings.map((s) => s.key).sort(), Object.keys(en.settings).sort());
  for (const s of settings) assert.match(en.settings[s.key][1], /[.;]/, s.key);
});

test("every option of a choice has a word", () => {
  for (const s of settings) for (const option of s.options ?? []) assert.ok(option in en.choices, option);
});

test("what is entered goes where the engine wants it", () => {
  const { settings: got, bad } = toRunSettings({
    layers: "6",
    lr: "3e-4",
    max_steps: "1,000",
    tied: "false",
    schedule: "wsd",
    sample_prompt: "Bir ",
    recompute: "true",
    clip: "0",
    d_model: "abc",
    batch: "1.5",
    accum: "",
  });
  assert.deepEqual(got, {
    model: { layers: 6, tied: false },
    lr: 3e-4,
    max_steps: 1000,
    schedule: "wsd",
    sample_prompt: "Bir ",
    recompute: true,
    clip: 0,
  });
  assert.deepEqual(bad.sort(), ["batch", "d_model"]);
});

test("the settings of a run fill the form and come out the same", () => {
  const run = {
    name: "x",
    data: [{ name: "d" }],
    model: { layers: 3, tied: true },
    batch: 4,
    lr: 0.001,
    warmup: 0,
    moments8: true,
    precision: "mixed",
  } as RunSettings;
  const { settings: back, bad } = toRunSettings(toEntered(run));
  assert.deepEqual(bad, []);
  const { name: _, data: __, ...rest } = run;
  assert.deepEqual(back, rest);
});

test("the demo's length fits its time, within bounds", () => {
  const plan = { tokens_per_step: 2048 };
  const tokens = 1_200_000;
  for (const speed of [1, 300, 2000, 20480, 1e9]) {
    const { max_steps, val_fraction, eval_every, sample_every, checkpoint_every } = demoLength(plan, speed, 90, tokens);
    assert.ok(max_steps! >= 20 && max_steps! <= 5000);
    assert.ok(val_fraction! >= 0.002 && val_fraction! <= 0.05);
    for (const every of [eval_every!, sample_every!, checkpoint_every!])
      assert.ok(Number.isInteger(every) && every >= 1 && every < max_steps!);
  }
  // What is trained and what is measured together take the time that was given.
  const { max_steps, val_fraction } = demoLength(plan, 2000, 90, tokens);
  const seconds = (max_steps! * 2048 + (4 * val_fraction! * tokens) / 3) / 2000;
  assert.ok(Math.abs(seconds - 90) < 2, `${seconds} s`);
});
