package corpus

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"time"
)

// encode runs the pipeline over all inputs.
func (b *builder) encode(ctx context.Context) error {
	sums := b.opt.Dedupe || b.opt.ValFraction > 0
	b.stream = &stream{ctx: ctx, opt: &b.opt.Input, list: b.list, piece: buildPiece, from: b.journal.Position,
		replay: b.opt.Dedupe && b.resumed, sums: b.opt.Dedupe}
	defer b.stream.close()
	for i := range b.list[:b.journal.Position.File] {
		b.readBefore += b.list[i].size
	}
	e := &encoder{opt: &b.opt.Input, list: b.list, tokenizer: b.opt.Tokenizer, width: b.train.width, sums: sums}
	b.saved = time.Now()
	err := runPipeline(ctx, b.stream, b.opt.Threads, e.work, b.job)
	if err == io.EOF {
		err = nil
	}
	return err
}

// job writes the records of one job.
func (b *builder) job(j *job) error {
	news := false
	for i := range j.records {
		rec, r := &j.records[i], &j.results[i]
		if rec.replay {
			b.replay(rec, r)
			continue
		}
		news = true
		if err := b.record(rec, r, j.tokens[r.start:r.end]); err != nil {
			return err
		}
		b.dirty = false
		b.journal.Position = position{rec.file, rec.ordinal + 1}
		b.journal.Stats.BytesRead = b.stream.read.Load()
	}
	if news && b.opt.written != nil {
		if err := b.opt.written(); err != nil {
			return err
		}
	}
	b.progress(false)
	return b.maybeSave()
}

// replay puts a document of an earlier run into the set of documents seen.
func (b *builder) replay(rec *record, r *result) {
	if key, ok := dedupeKey(rec, r); ok && r.err == nil && (r.textBytes > 0 || !rec.last) {
		b.seen.add(key)
	}
}

// dedupeKey is the hash of the whole document that begins with rec, if it is known.
func dedupeKey(rec *record, r *result) (key [16]byte, ok bool) {
	switch {
	case !rec.first:
		return key, false
	case rec.docSum != nil:
		return *rec.docSum, true
	}
	return r.sum, rec.last
}

// record writes one record.
func (b *builder) record(rec *record, r *result, tokens []byte) error {
	if err := b.journal.Stats.count(rec, r.textBytes, r.err, b.opt.Input.SkipBad); err != nil {
		return err
	}
	if r.err != nil && b.journal.Stats.Bad <= 10 {
		b.notice("skipped: %v", r.err)
	}
	if r.err != nil || rec.kind != kindText || rec.first && rec.last && r.textBytes == 0 {
		return nil
	}
	doc := &b.journal.Doc
	if rec.first {
		*doc = docState{Val: b.isVal(r.sum)}
		if key, ok := dedupeKey(rec, r); ok && b.opt.Dedupe && b.seen.add(key) {
			doc.Drop = true
			b.journal.Duplicates++
		}
	}
	if doc.Drop {
		return nil
	}
	out := b.train
	if doc.Val {
		out = b.val
	}
	b.written += int64(len(tokens))
	b.dirty = true
	return out.write(tokens, int64(r.textBytes), rec.first, rec.last)
}

// isVal tells by the hash of a document's first piece whether the document is for validation.
func (b *builder) isVal(sum [16]byte) bool {
	if b.val == nil {
		return false
	}
	x := mix64(binary.LittleEndian.Uint64(sum[:]) ^ mix64(b.opt.Seed))
	return float64(x>>11)/(1<<53) < b.opt.ValFraction
}

// maybeSave saves the journal every few seconds, after much was written, and when a shard was sealed.
func (b *builder) maybeSave() error {
	if !b.resumable {
		return nil
	}
	sealed := len(b.train.sealed)
	if b.val != nil {
		sealed += len(b.val.sealed)
	}
	due := sealed != b.sealed || b.written > 256<<20 || time.Since(b.saved) > 5*time.Second
	if b.opt.checkpoint != nil {
		due = sealed != b.sealed || b.opt.checkpoint(b.written, time.Since(b.saved))
	}
	if !due {
		return nil
	}
	b.sealed = sealed
	return b.save()
}

func (b *builder) save() error {
	for _, o := range b.outputs() {
		if err := o.flush(); err != nil {
			return err
		}
	}
	b.journal.Train = b.train.state()
	if b.val != nil {
		b.journal.Val = b.val.state()
	}
	if err := b.journal.save(b.journalPath()); err != nil {
		return err
	}
	for _, o := range b.outputs() {
		o.dropSpills()
	}
	b.saved, b.written = time.Now(), 0
	return nil
}

// interrupted handles an error in the middle: what a later run can go on with stays, anything else is removed.
func (b *builder) interrupted(err error) error {
	changed := errors.Is(err, errChanged) // then a later run has other inputs
	var saveErr error
	if b.resumable && !changed && !b.dirty {
		saveErr = b.save()
	}
	old, _ := readJournal(b.journalPath())
	keep := b.resumable && !changed && old != nil && old.Stats.Documents > 0
	for _, o := range b.outputs() {
		o.abandon(!keep)
	}
	if !keep {
		os.Remove(b.journalPath())
		return diskError(err)
	}
	if saveErr != nil && !isDiskFull(err) {
		err = errors.Join(err, saveErr)
	}
	return fmt.Errorf("%w; %d documents are kept in %s%s: run the same command again to go on", diskError(err),
		old.Stats.Documents, b.opt.Out, partialSuffix)
}

// diskError adds advice to an error of a full disk.
func diskError(err error) error {
	if isDiskFull(err) {
		return fmt.Errorf("%w: free some space or choose another output", err)
	}
	return err
}

// finish checks that there is something to train on and completes the files under their temporary names.
func (b *builder) finish() error {
	if err := b.complete(); err != nil {
		for _, o := range b.outputs() {
			o.abandon(true)
		}
		os.Remove(b.journalPath())
		return diskError(err)
	}
	for _, o := range b.outputs() {
		o.dropSpills()
	}
	return nil
}

func (b *builder) complete() error {
	if err := noDocuments(&b.journal.Stats, &b.opt.Input); err != nil {
		return err
	}
	if b.val != nil {
		_, train, _ := b.train.totals()
		_, val, _ := b.val.totals()
		if train == 0 || val == 0 {
			return fmt.Errorf("a validation fraction of %v leaves %d documents for training and %d for validation: give more "+
				"documents (--split cuts text at %s), or build without a fraction and let training hold out the tail",
				b.opt.ValFraction, train, val, endOfText)
		}
	}
	for _, o := range b.outputs() {
		if err := o.seal(); err != nil {
			return err
		}
	}
	b.journal.Complete = true
	b.journal.Train = b.train.state()
	if b.val != nil {
		b.journal.Val = b.val.state()
	}
	return b.journal.save(b.journalPath())
}

// publish gives the files their names, and can do so again after a crash in between.
func (b *builder) publish() error {
	for _, o := range b.outputs() {
		if err := o.publish(b.opt.Threads); err != nil {
			return err
		}
	}
	return os.Remove(b.journalPath())
}

// progress reports at most five times a second, and at the end.
func (b *builder) progress(done bool) {
	now := time.Now()
	if b.opt.Progress == nil || !done && now.Sub(b.shown) < 200*time.Millisecond {
		return
	}
	b.shown = now
	p := Progress{BytesTotal: b.total, Documents: b.journal.Stats.Documents, TextBytes: b.journal.Stats.Bytes,
		Elapsed: now.Sub(b.start), Done: done, BytesRead: b.journal.Stats.BytesRead}
	p.MBPerSec = float64(p.TextBytes-b.textBefore) / 1e6 / math.Max(p.Elapsed.Seconds(), 1e-9)
	for _, o := range b.outputs() {
		tokens, _, _ := o.totals()
		p.Tokens += tokens
	}
	if done {
		p.BytesTotal = max(p.BytesTotal, p.BytesRead) // of a parquet file only one column is read
		p.BytesRead = p.BytesTotal
	}
	if here := p.BytesRead - b.readBefore; here > 0 && p.BytesTotal > p.BytesRead && !done {
		p.ETA = time.Duration(float64(p.Elapsed) * float64(p.BytesTotal-p.BytesRead) / float64(here))
	}
	b.opt.Progress(p)
}

func (b *builder) report() Report {
	r := Report{Path: b.train.published(), Stats: b.journal.Stats, Duplicates: b.journal.Duplicates,
		Shards: len(b.train.sealed), Resumed: b.resumed, Elapsed: time.Since(b.start)}
	r.Tokens, r.Documents, r.TextBytes = b.train.totals()
	if b.val != nil {
		r.ValPath, r.ValShards = b.val.published(), len(b.val.sealed)
		r.ValTokens, r.ValDocuments, r.ValTextBytes = b.val.totals()
	}
	r.MBPerSec = float64(r.Stats.Bytes-b.textBefore) / 1e6 / math.Max(r.Elapsed.Seconds(), 1e-9)
	return r
}
