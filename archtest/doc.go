// Package archtest has no code, only a test: it reads `go list` and fails on
// an import that the table in rules_test.go does not allow. A new package, or
// a new edge, is a line in that table with its reason.
package archtest
