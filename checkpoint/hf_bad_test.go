package checkpoint

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"tezgah/tensor"
)

// allocated is how many bytes f allocates.
func allocated(f func()) int64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return int64(after.TotalAlloc - before.TotalAlloc)
}

// maxRefusalBytes is what finding a bad folder bad may allocate: its small
// JSON files, and at most the list of the tensors of 4096 layers, but never
// what the files declare, which below is 90 MB and more.
const maxRefusalBytes = 32 << 20

// badFolder is one way to spoil a sound folder of three shards, and what the
// error must name.
type badFolder struct {
	name  string
	spoil func(t *testing.T, dir string)
	want  []string
}

const shard1 = "model-00001-of-00003.safetensors"

// put writes a file of a folder.
func put(name, content string) func(t *testing.T, dir string) {
	return func(t *testing.T, dir string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o666); err != nil {
			t.Fatal(err)
		}
	}
}

// swap replaces the first occurrence of a text in a file by one of the same
// length, or of any length in a JSON file.
func swap(name, from, to string) func(t *testing.T, dir string) {
	return func(t *testing.T, dir string) {
		path := filepath.Join(dir, name)
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Contains(b, []byte(from)) || strings.HasSuffix(name, ".safetensors") && len(from) != len(to) {
			t.Fatalf("cannot replace %q by %q in %s", from, to, name)
		}
		put(name, string(bytes.Replace(b, []byte(from), []byte(to), 1)))(t, dir)
	}
}

// header1 replaces the first shard by a file of this header and n bytes.
func header1(head string, n int) func(t *testing.T, dir string) {
	return put(shard1, string(raw(head, n)))
}

// sparse makes a file of this size without content.
func sparse(name string, size int64) func(t *testing.T, dir string) {
	return func(t *testing.T, dir string) {
		put(name, "")(t, dir)
		if err := os.Truncate(filepath.Join(dir, name), size); err != nil {
			t.Fatal(err)
		}
	}
}

// linkOut moves a file out of the folder and leaves a link to it.
func linkOut(name string) func(t *testing.T, dir string) {
	return func(t *testing.T, dir string) {
		outside := filepath.Join(t.TempDir(), "secret.safetensors")
		if err := os.Rename(filepath.Join(dir, name), outside); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(outside, filepath.Join(dir, name)); err != nil {
			t.Skip("no links here: ", err)
		}
	}
}

var badFolders = []badFolder{
	{"header length past the file", put(shard1, string(binary.LittleEndian.AppendUint64(nil, 90_000_000))+"{}"), []string{shard1, "90000000 bytes long", "cut short"}},
	{"header length past any file", put(shard1, string(binary.LittleEndian.AppendUint64(nil, math.MaxUint64))+"{}"), []string{shard1, "at most 100000000"}},
	{"no header", put(shard1, "abc"), []string{shard1, "too few"}},
	{"header of zeros", sparse(shard1, 1<<20), []string{shard1, "'{'"}},
	{"hole", header1(`{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"F32","shape":[1],"data_offsets":[8,12]}}`, 12), []string{shard1, `"b"`, "belong to no tensor"}},
	{"overlap", header1(`{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}}`, 12), []string{shard1, `"b"`, "inside the tensor before"}},
	{"bytes of nobody", header1(`{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}`, 8), []string{shard1, "end at byte 4", "has 8"}},
	{"offsets past the file", header1(`{"a":{"dtype":"F32","shape":[1000000000000],"data_offsets":[0,4000000000000]}}`, 8), []string{shard1, `"a"`, "4000000000000"}},
	{"offsets backwards", header1(`{"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}}`, 4), []string{shard1, `"a"`, "data_offsets"}},
	{"negative dimension", header1(`{"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}}`, 4), []string{shard1, `"a"`, "-1"}},
	{"fractional dimension", header1(`{"a":{"dtype":"F32","shape":[1.5],"data_offsets":[0,4]}}`, 4), []string{shard1, `"a"`, "1.5"}},
	{"dimensions that overflow", header1(`{"a":{"dtype":"F32","shape":[4611686018427387905,4],"data_offsets":[0,4]}}`, 4), []string{shard1, `"a"`, "larger than any file"}},
	{"dimension past 64 bits", header1(`{"a":{"dtype":"F32","shape":[18446744073709551616],"data_offsets":[0,4]}}`, 4), []string{shard1, `"a"`, "18446744073709551616"}},
	{"shape against offsets", header1(`{"a":{"dtype":"F32","shape":[3],"data_offsets":[0,4]}}`, 4), []string{shard1, `"a"`, "needs 12 bytes"}},
	{"unknown type", header1(`{"a":{"dtype":"Q4","shape":[1],"data_offsets":[0,4]}}`, 4), []string{shard1, `"a"`, "Q4"}},
	{"tensor twice in a header", header1(`{"a":{"dtype":"F32","shape":[0],"data_offsets":[0,0]},"a":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}}`, 0), []string{shard1, `"a" twice`}},
	{"tensor in two shards", func(t *testing.T, dir string) {
		b, err := os.ReadFile(filepath.Join(dir, shard1))
		if err != nil {
			t.Fatal(err)
		}
		put("model-00002-of-00003.safetensors", string(b))(t, dir)
	}, []string{"is in " + shard1 + " and in model-00002-of-00003.safetensors"}},
	{"weights of integers", swap(shard1, `"dtype":"F32"`, `"dtype":"U32"`), []string{shard1, "U32", "want F32, F16 or BF16"}},
	{"turned matrix", swap(shard1, `"shape":[24,5]`, `"shape":[5,24]`), []string{shard1, "q_proj", "[5 24]", "want [24 5]"}},

	{"link to another file", linkOut(shard1), []string{shard1, "secret.safetensors", "outside"}},
	{"link to another configuration", linkOut("config.json"), []string{"config.json", "outside"}},
	{"link to another tokenizer", linkOut("tokenizer.json"), []string{"tokenizer.json", "outside"}},
	{"index out of the folder", swap(indexName, shard1, "../../"+shard1), []string{"../../", "same folder"}},
	{"index to an absolute path", swap(indexName, shard1, "/etc/model.safetensors"), []string{"/etc/model.safetensors", "same folder"}},
	{"index to a drive", swap(indexName, shard1, `C:model.safetensors`), []string{"C:model", "same folder"}},
	{"index to a share", swap(indexName, shard1, `\\\\host\\x\\m.safetensors`), []string{"same folder"}},
	{"index to the parent", swap(indexName, shard1, ".."), []string{"same folder"}},
	{"index to nothing", swap(indexName, shard1, ""), []string{"same folder"}},
	{"index with a key twice", swap(indexName, `"weight_map": {`, `"weight_map": {"a":"b.safetensors","a":"c.safetensors",`), []string{indexName, `"a" twice`}},
	{"index of a number", swap(indexName, `"`+shard1+`"`, `7`), []string{indexName}},

	{"configuration with a key twice", swap("config.json", `"hidden_size": 5`, `"hidden_size": 4, "hidden_size": 5`), []string{"config.json", `"hidden_size" twice`}},
	{"configuration that is too long", sparse("config.json", 3<<20), []string{"config.json", "3145728 bytes"}},
	{"index that is too long", sparse(indexName, 1<<30), []string{indexName, "1073741824 bytes"}},
	{"tokenizer that is too long", sparse("tokenizer.json", 1<<32), []string{"tokenizer.json", "4294967296 bytes"}},
	{"configuration is a folder", func(t *testing.T, dir string) {
		path := filepath.Join(dir, "config.json")
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(path, 0o777); err != nil {
			t.Fatal(err)
		}
	}, []string{"config.json", "not a regular file"}},
	{"configuration is nested", put("config.json", strings.Repeat("[", 100_000)), []string{"config.json"}},
	{"a million layers", swap("config.json", `"num_hidden_layers": 2`, `"num_hidden_layers": 1000000`), []string{"layers is 1000000", "want 1 to 4096"}},
	{"4096 layers that are not there", swap("config.json", `"num_hidden_layers": 2`, `"num_hidden_layers": 4096`), []string{"model.layers.2.", "missing"}},
	{"giant vocabulary", swap("config.json", `"vocab_size": 9`, `"vocab_size": 16777216`), []string{"embed_tokens", "[9 5]", "[16777216 5]"}},
	{"vocabulary past any", swap("config.json", `"vocab_size": 9`, `"vocab_size": 1000000000000`), []string{"vocab_size is 1000000000000"}},
	{"vocabulary past 64 bits", swap("config.json", `"vocab_size": 9`, `"vocab_size": 1e30`), []string{"config.json", "vocab_size"}},
	{"negative width", swap("config.json", `"hidden_size": 5`, `"hidden_size": -5`), []string{"d_model is -5"}},
	{"no heads", swap("config.json", `"num_attention_heads": 4`, `"num_attention_heads": 0`), []string{"num_attention_heads"}},
	{"unknown architecture", swap("config.json", "LlamaForCausalLM", "MambaForCausalLM"), []string{"MambaForCausalLM", "only LlamaForCausalLM"}},
	{"unknown type of model", swap("config.json", `"model_type": "llama"`, `"model_type": "phi3"`), []string{"phi3"}},
	{"end token of no vocabulary", swap("generation_config.json", `"eos_token_id": 5`, `"eos_token_id": [5, 9]`), []string{"generation_config.json", "token id 9", "0 to 8"}},
	{"chat template of numbers", swap("tokenizer_config.json", `"clean_up`, `"chat_template": 7, "clean_up`), []string{"tokenizer_config.json", "chat_template"}},
}

// TestOpenHFBadInput: every bad folder is refused by name and by path, and
// nothing of the size that it declares is allocated before.
func TestOpenHFBadInput(t *testing.T) {
	l := llamaFile(t, tiny, tinyTokenizer, false)
	for _, c := range badFolders {
		t.Run(c.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "hf")
			if err := ExportHF(dir, l, HFOptions{ShardBytes: 1700}); err != nil {
				t.Fatal(err)
			}
			c.spoil(t, dir)
			var m *HFModel
			var err error
			if n := allocated(func() { m, err = OpenHF(dir) }); n > maxRefusalBytes {
				t.Errorf("%d bytes were allocated, want at most %d", n, maxRefusalBytes)
			}
			if err == nil {
				m.Close()
			}
			wantError(t, err, append(c.want, dir)...)
		})
	}
}

// TestHFLinks: links within the folder are followed, and those of the layout
// of Hugging Face's cache.
func TestHFLinks(t *testing.T) {
	l := llamaFile(t, tiny, tinyTokenizer, false)
	home := t.TempDir()
	snapshot, blobs := filepath.Join(home, "snapshots", "abc"), filepath.Join(home, "blobs")
	if err := ExportHF(snapshot, l, HFOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(blobs, 0o777); err != nil {
		t.Fatal(err)
	}
	for i, name := range folder(t, snapshot) {
		blob := fmt.Sprint("blob", i)
		if err := os.Rename(filepath.Join(snapshot, name), filepath.Join(blobs, blob)); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(filepath.Join("..", "..", "blobs", blob), filepath.Join(snapshot, name)); err != nil {
			t.Skip("no links here: ", err)
		}
	}
	checkImport(t, snapshot, l, tiny)

	inside := filepath.Join(t.TempDir(), "hf")
	if err := ExportHF(inside, l, HFOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(inside, singleName), filepath.Join(inside, "w.bin")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("w.bin", filepath.Join(inside, singleName)); err != nil {
		t.Fatal(err)
	}
	checkImport(t, inside, l, tiny)
}

// TestImportRefusesNonFinite: a NaN or an infinity of any type fails the save
// by name, and the file that was there stays.
func TestImportRefusesNonFinite(t *testing.T) {
	for dt, bits := range map[tensor.DType][]uint32{
		tensor.F32:  {0x7fc00000, 0x7f800000, 0xff800000, 0x7f800001},
		tensor.F16:  {0x7e00, 0x7c00, 0xfc00},
		tensor.BF16: {0x7fc0, 0x7f80, 0xff80},
	} {
		for _, b := range bits {
			for _, name := range []string{"layers.1.wq", "final_norm", "tok_emb"} {
				refuseNonFinite(t, dt, b, name)
			}
		}
	}
}

func refuseNonFinite(t *testing.T, dt tensor.DType, bits uint32, name string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "hf")
	if err := ExportHF(dir, llamaFile(t, tiny, "", true), HFOptions{Type: dt}); err != nil {
		t.Fatal(err)
	}
	m, err := OpenHF(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	var hf string
	for _, lt := range m.Config.tensors() {
		if lt.ours == name {
			hf = lt.hf
		}
	}
	f := m.files[singleName]
	e, err := f.entry(hf)
	if err != nil {
		t.Fatal(err)
	}
	w, err := os.OpenFile(filepath.Join(dir, singleName), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	value := binary.LittleEndian.AppendUint32(nil, bits)[:dt.Size()]
	if _, err := w.WriteAt(value, f.dataAt+e.end-int64(dt.Size())); err != nil {
		t.Fatal(err)
	}
	w.Close()
	out := filepath.Join(t.TempDir(), "out.llm")
	put("out.llm", "what was there")(t, filepath.Dir(out))
	err = SaveLLM(out, Header{Config: json.RawMessage(`{}`)}, m.Weights(), nil)
	wantError(t, err, hf, dir)
	if b, err := os.ReadFile(out); err != nil || string(b) != "what was there" {
		t.Errorf("the old file is %q, %v", b, err)
	}
	if names := folder(t, filepath.Dir(out)); len(names) != 1 {
		t.Errorf("folder has %q", names)
	}
}

// TestUniqueKeys compares with what the encoding/json package calls valid.
func TestUniqueKeys(t *testing.T) {
	for _, good := range []string{`{}`, `[]`, `7`, `{"a":{"b":1},"b":[{"b":2},{"b":3}]}`, `{"a":[[[]]],"":null}`} {
		if err := uniqueKeys([]byte(good)); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
	for bad, want := range map[string]string{
		`{"a":1,"a":1}`: `the file has the key "a" twice`, `{"x":[1,{"b":{},"b":{}}]}`: `"b" twice`,
		`{"a":1`: "unexpected end", `{"\u0061":1,"a":2}`: `"a" twice`, ``: "unexpected end", `{} {}`: "after top-level value",
	} {
		wantError(t, uniqueKeys([]byte(bad)), want)
	}
}
