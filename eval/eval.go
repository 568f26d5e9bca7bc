// Package eval measures what a model has learned: multiple-choice tasks scored
// by the likelihood of each answer, perplexity over windows that overlap, and
// logits for comparing engines.
//
//	task.go     one task a line, out of a jsonl file
//	encode.go   where context and choice meet
//	pack.go     many rows of different lengths in few batches
//	score.go    Score: the log-likelihood of every choice
//	report.go   accuracies with their standard errors, by task
//	stride.go   Perplexity
//	logits.go   WriteLogits
//
// The package prints nothing and chooses no device: it gets parameters that
// somebody has loaded. docs/eval.md defines every number. Open score.go first.
package eval
