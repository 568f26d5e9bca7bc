package corpus

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// output is one token file being built, the training or the validation part: one shard, or several of limited size.
type output struct {
	dir, base string // the file is dir/base.bin
	limit     int64  // tokens per shard, 0 for no limit
	tokenizer Tokenizer
	width     int

	sealed []shardState
	cur    *shardWriter
	spills []string // index files of sealed shards, needed until the journal knows that they are sealed
}

// newOutput prepares to write path, whose name must end in .bin. shardBytes limits the token data of a shard.
func newOutput(path string, t Tokenizer, shardBytes int64) (*output, error) {
	dir, name := filepath.Split(path)
	base, ok := strings.CutSuffix(name, ".bin")
	if !ok || base == "" {
		return nil, fmt.Errorf("output %s: want a name that ends in .bin", path)
	}
	o := &output{dir: dir, base: base, tokenizer: t, width: tokenWidth(t.VocabSize())}
	if shardBytes > 0 {
		o.limit = shardBytes / int64(o.width)
	}
	return o, nil
}

func (o *output) path() string         { return filepath.Join(o.dir, o.base+".bin") }
func (o *output) manifestPath() string { return filepath.Join(o.dir, o.base+".manifest.json") }

func (o *output) shardName(i int) string {
	if o.limit == 0 {
		return o.base + ".bin"
	}
	return fmt.Sprintf("%s-%05d.bin", o.base, i)
}

// write appends a document or a piece of one: tokens of o.width bytes each, made from textBytes bytes of text. A whole
// document is kept in one shard when it fits into one; a long document that comes in pieces is cut at the limit.
func (o *output) write(tokens []byte, textBytes int64, first, last bool) error {
	if err := o.ready(int64(len(tokens)/o.width), first && last); err != nil {
		return err
	}
	if first {
		if err := o.cur.startDoc(); err != nil {
			return err
		}
	}
	o.cur.TextBytes += textBytes
	for len(tokens) > 0 {
		n := int64(len(tokens))
		if o.limit > 0 {
			n = min(n, (o.limit-o.cur.Tokens)*int64(o.width))
		}
		if n == 0 {
			if err := o.roll(true); err != nil {
				return err
			}
			continue
		}
		if err := o.cur.write(tokens[:n]); err != nil {
			return err
		}
		tokens = tokens[n:]
	}
	return nil
}

// ready opens the first shard, and the next one when the document does not fit into what is left of this one.
func (o *output) ready(tokens int64, whole bool) error {
	if o.cur == nil {
		return o.open(false)
	}
	if o.limit == 0 || o.cur.Tokens == 0 {
		return nil
	}
	room := o.limit - o.cur.Tokens
	if room == 0 || whole && tokens > room && tokens <= o.limit {
		return o.roll(!whole)
	}
	return nil
}

// roll seals the current shard and opens the next.
func (o *output) roll(continues bool) error {
	if err := o.seal(); err != nil {
		return err
	}
	return o.open(continues)
}

func (o *output) open(continues bool) error {
	w, err := createShard(o.dir, o.shardName(len(o.sealed)), o.width, continues)
	o.cur = w
	return err
}

func (o *output) seal() error {
	if o.cur == nil {
		return nil
	}
	if err := o.cur.seal(o.tokenizer); err != nil {
		return err
	}
	o.sealed = append(o.sealed, o.cur.shardState)
	o.spills = append(o.spills, o.cur.indexPartial())
	o.cur = nil
	return nil
}

// flush makes everything written so far survive a crash.
func (o *output) flush() error {
	if o.cur == nil {
		return nil
	}
	return o.cur.flush()
}

// state is what the journal keeps.
func (o *output) state() []shardState {
	s := append([]shardState(nil), o.sealed...)
	if o.cur != nil {
		s = append(s, o.cur.shardState)
	}
	return s
}

// restore goes on with the shards of a journal.
func (o *output) restore(states []shardState) error {
	for i, s := range states {
		if s.Name != o.shardName(i) {
			return fmt.Errorf("shard %q, want %q", s.Name, o.shardName(i))
		}
		if s.Sealed {
			if _, err := os.Stat(filepath.Join(o.dir, s.Name+partialSuffix)); err != nil {
				return err
			}
			o.sealed = append(o.sealed, s)
			continue
		}
		w, err := reopenShard(o.dir, s, o.width)
		if err != nil {
			return err
		}
		o.cur = w
	}
	return nil
}

// dropSpills removes the index files of sealed shards.
func (o *output) dropSpills() {
	for _, path := range o.spills {
		os.Remove(path)
	}
	o.spills = nil
}

// abandon closes the shard being written; remove also deletes everything that was written.
func (o *output) abandon(remove bool) {
	if o.cur != nil {
		o.cur.close()
	}
	if !remove {
		return
	}
	o.dropSpills()
	for _, s := range o.state() {
		path := filepath.Join(o.dir, s.Name)
		os.Remove(path + partialSuffix)
		os.Remove(path + ".docs" + partialSuffix)
	}
	o.sealed, o.cur = nil, nil
}

// totals sums over the shards.
func (o *output) totals() (tokens, docs, textBytes int64) {
	for _, s := range o.state() {
		tokens += s.Tokens
		docs += s.Docs
		textBytes += s.TextBytes
	}
	return
}
