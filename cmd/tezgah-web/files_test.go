package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// The tests of this file hold for the file system of any Unix, and run against
// it where they are run natively. In a browser (WASM_FS=opfs, see
// scripts/wasm-browser-exec) they hold the tab's file system to the same.

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o666); err != nil {
		t.Fatal(err)
	}
}

func wantContent(t *testing.T, path, want string) {
	t.Helper()
	got, err := os.ReadFile(path)
	if err != nil || string(got) != want {
		t.Fatalf("%s: got %q, %v, want %q", path, got, err, want)
	}
}

func wantError(t *testing.T, what string, got, want error) {
	t.Helper()
	if !errors.Is(got, want) {
		t.Errorf("%s: got error %v, want %v", what, got, want)
	}
}

func TestOpenFlags(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "şekil 1.txt")
	_, err := os.Open(path)
	wantError(t, "open what is not there", err, fs.ErrNotExist)
	_, err = os.OpenFile(path, os.O_RDWR, 0)
	wantError(t, "open for writing what is not there", err, fs.ErrNotExist)
	write(t, path, "first")
	_, err = os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o666)
	wantError(t, "create what is there", err, fs.ErrExist)
	_, err = os.Open(filepath.Join(path, "below"))
	if err == nil {
		t.Error("a file was opened as a folder")
	}
	_, err = os.Create(dir)
	if err == nil {
		t.Error("a folder was opened for writing")
	}

	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	g, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	io.WriteString(f, " second")
	io.WriteString(g, " third")
	io.WriteString(f, " fourth")
	if _, err := f.Read(make([]byte, 1)); err == nil {
		t.Error("a file open for writing alone was read")
	}
	f.Close()
	g.Close()
	wantContent(t, path, "first second third fourth")

	h, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.Write([]byte("x")); err == nil {
		t.Error("a file open for reading was written")
	}
	h.Close()
	if _, err := h.Read(make([]byte, 1)); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("a closed file was read: %v", err)
	}
	write(t, path, "new") // truncates
	wantContent(t, path, "new")
}

func TestReadWriteAt(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "f"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt([]byte("far"), 10_000); err != nil {
		t.Fatal(err)
	}
	if st, err := f.Stat(); err != nil || st.Size() != 10_003 {
		t.Fatalf("size %v, %v, want 10003", st.Size(), err)
	}
	b := make([]byte, 10_010)
	n, err := f.ReadAt(b, 0)
	if n != 10_003 || err != io.EOF || !bytes.Equal(b[:10_000], make([]byte, 10_000)) || string(b[10_000:n]) != "far" {
		t.Fatalf("read %d bytes, %v; the hole must be zeros", n, err)
	}
	if err := f.Truncate(4); err != nil {
		t.Fatal(err)
	}
	if err := f.Truncate(8); err != nil {
		t.Fatal(err)
	}
	if n, err := f.ReadAt(b, 0); n != 8 || err != io.EOF || !bytes.Equal(b[:8], make([]byte, 8)) {
		t.Fatalf("after cutting: %d bytes, %v, %q", n, err, b[:n])
	}
	if off, err := f.Seek(-2, io.SeekEnd); off != 6 || err != nil {
		t.Fatalf("seek: %d, %v", off, err)
	}
	f.WriteString("abcd")
	if off, _ := f.Seek(0, io.SeekCurrent); off != 10 {
		t.Fatalf("position after writing is %d, want 10", off)
	}
	f.Seek(5, io.SeekStart)
	rest, err := io.ReadAll(f)
	if string(rest) != "\x00abcd" || err != nil {
		t.Fatalf("read %q, %v", rest, err)
	}
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
}

func TestFolders(t *testing.T) {
	dir := t.TempDir()
	deep := filepath.Join(dir, "a", "b", "c")
	wantError(t, "a folder without its parent", os.Mkdir(deep, 0o777), fs.ErrNotExist)
	if err := os.MkdirAll(deep, 0o777); err != nil {
		t.Fatal(err)
	}
	wantError(t, "a folder twice", os.Mkdir(deep, 0o777), fs.ErrExist)
	for _, name := range []string{"z", ".hidden", "ğ", "a b"} {
		write(t, filepath.Join(dir, "a", name), name)
	}
	entries, err := os.ReadDir(filepath.Join(dir, "a"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || e.IsDir() != (e.Name() == "b") || info.IsDir() != e.IsDir() {
			t.Errorf("%s: folder %v, %v", e.Name(), e.IsDir(), err)
		}
		if !e.IsDir() && (info.Size() != int64(len(e.Name())) || time.Since(info.ModTime()).Abs() > time.Hour) {
			t.Errorf("%s: size %d, time %v", e.Name(), info.Size(), info.ModTime())
		}
		names = append(names, e.Name())
	}
	if want := []string{".hidden", "a b", "b", "z", "ğ"}; !slices.Equal(names, want) {
		t.Errorf("folder has %q, want %q", names, want)
	}
	if err := os.Remove(filepath.Join(dir, "a")); err == nil {
		t.Error("a full folder was removed")
	}
	if err := os.Remove(deep); err != nil {
		t.Error(err)
	}
	if err := os.RemoveAll(filepath.Join(dir, "a")); err != nil {
		t.Fatal(err)
	}
	_, err = os.Stat(filepath.Join(dir, "a"))
	wantError(t, "stat of what was removed", err, fs.ErrNotExist)
	wantError(t, "removing what is not there", os.Remove(filepath.Join(dir, "a")), fs.ErrNotExist)
}

func TestRename(t *testing.T) {
	dir := t.TempDir()
	p := func(name string) string { return filepath.Join(dir, name) }
	wantError(t, "renaming what is not there", os.Rename(p("x"), p("y")), fs.ErrNotExist)
	write(t, p("a"), "A")
	write(t, p("b"), "B")
	if err := os.Rename(p("a"), p("b")); err != nil {
		t.Fatal(err)
	}
	wantContent(t, p("b"), "A")
	_, err := os.Stat(p("a"))
	wantError(t, "stat of the old name", err, fs.ErrNotExist)
	if err := os.Rename(p("b"), p("b")); err != nil {
		t.Errorf("renaming to itself: %v", err)
	}
	if err := os.MkdirAll(p("d/e"), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(p("b"), p("d")); err == nil {
		t.Error("a file replaced a folder")
	}
	if err := os.Rename(p("b"), p("d/e/b2")); err != nil {
		t.Fatal(err)
	}
	wantContent(t, p("d/e/b2"), "A")

	if err := os.Rename(p("d"), p("d/e/f")); err == nil {
		t.Error("a folder was moved into itself")
	}
	os.Mkdir(p("full"), 0o777)
	write(t, p("full/x"), "")
	if err := os.Rename(p("d"), p("full")); err == nil {
		t.Error("a folder replaced a full one")
	}
	if err := os.Rename(p("d"), p("moved")); err != nil {
		t.Fatal(err)
	}
	wantContent(t, p("moved/e/b2"), "A")
	_, err = os.Stat(p("d"))
	wantError(t, "stat of the old folder", err, fs.ErrNotExist)
}

// TestOpenFilesKeepTheirContent: a file that is replaced or removed while it is
// open stays readable and writable for whoever has it.
func TestOpenFilesKeepTheirContent(t *testing.T) {
	dir := t.TempDir()
	p := func(name string) string { return filepath.Join(dir, name) }
	open := func(name string) *os.File {
		t.Helper()
		f, err := os.OpenFile(p(name), os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	write(t, p("old"), "old content")
	write(t, p("new"), "new content")
	old, moved := open("old"), open("new")
	if err := os.Rename(p("new"), p("old")); err != nil {
		t.Fatal(err)
	}
	wantContent(t, p("old"), "new content")
	b := make([]byte, 3)
	if _, err := old.ReadAt(b, 0); err != nil || string(b) != "old" {
		t.Errorf("the replaced file reads %q, %v", b, err)
	}
	if _, err := moved.WriteAt([]byte("NEW"), 0); err != nil {
		t.Error(err)
	}
	wantContent(t, p("old"), "NEW content")
	a, err1 := moved.Stat()
	c, err2 := os.Stat(p("old"))
	if err1 != nil || err2 != nil || !os.SameFile(a, c) {
		t.Errorf("the renamed file is not the same: %v, %v", err1, err2)
	}
	old.Close()

	if err := os.Remove(p("old")); err != nil {
		t.Fatal(err)
	}
	if _, err := moved.WriteAt([]byte("gone"), 0); err != nil {
		t.Errorf("writing a removed file: %v", err)
	}
	if _, err := moved.ReadAt(b, 0); err != nil || string(b) != "gon" {
		t.Errorf("a removed file reads %q, %v", b, err)
	}
	write(t, p("old"), "another")
	moved.Close()
	wantContent(t, p("old"), "another")
	if entries, _ := os.ReadDir(dir); len(entries) != 1 {
		t.Errorf("%d entries are left, want 1", len(entries))
	}
}

// TestManyFiles goes through more files than stay open, in random order, and
// compares with what is kept in memory.
func TestManyFiles(t *testing.T) {
	dir := t.TempDir()
	r := rand.New(rand.NewPCG(1, 2))
	want := map[string][]byte{}
	name := func() string { return filepath.Join(dir, fmt.Sprint(r.IntN(60))) }
	for range 600 {
		path := name()
		switch r.IntN(5) {
		case 0:
			to := name()
			err := os.Rename(path, to)
			if (err == nil) != (want[path] != nil) {
				t.Fatalf("rename: %v", err)
			}
			if err == nil && path != to {
				want[to] = want[path]
				delete(want, path)
			}
		case 1:
			if err := os.Remove(path); (err == nil) != (want[path] != nil) {
				t.Fatalf("remove: %v", err)
			}
			delete(want, path)
		default:
			f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o666)
			if err != nil {
				t.Fatal(err)
			}
			off, b := r.IntN(5000), make([]byte, 1+r.IntN(5000))
			for i := range b {
				b[i] = byte(r.Uint32())
			}
			if _, err := f.WriteAt(b, int64(off)); err != nil {
				t.Fatal(err)
			}
			f.Close()
			if n := off + len(b); len(want[path]) < n {
				want[path] = append(want[path], make([]byte, n-len(want[path]))...)
			}
			copy(want[path][off:], b)
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != len(want) {
		t.Fatalf("%d entries, %v, want %d", len(entries), err, len(want))
	}
	for path, content := range want {
		if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, content) {
			t.Errorf("%s: %d bytes, %v, want %d others", path, len(got), err, len(content))
		}
	}
}

func TestOther(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	write(t, path, "12345678")
	if err := os.Truncate(path, 3); err != nil {
		t.Error(err)
	}
	wantContent(t, path, "123")
	when := time.Date(2001, 2, 3, 4, 5, 6, 0, time.UTC)
	if err := os.Chtimes(path, when, when); err != nil {
		t.Error(err)
	}
	if st, err := os.Stat(path); err != nil || !st.ModTime().Equal(when) {
		t.Errorf("time is %v, %v, want %v", st.ModTime(), err, when)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		t.Error(err)
	}
	wantError(t, "changing what is not there", os.Chmod(path+"x", 0o600), fs.ErrNotExist)
	back, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	defer os.Chdir(back)
	if err := os.Chdir(dir); err != nil {
		t.Fatal(err)
	}
	wantContent(t, "f", "123")
	wantContent(t, "./f", "123")
}
