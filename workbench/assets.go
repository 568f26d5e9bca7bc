package workbench

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
)

// dist is the built page. Without `make web` it holds a placeholder alone.
//
//go:embed all:web/dist
var dist embed.FS

// EmbeddedPage is the page that this program was built with, nil when it was
// built without.
func EmbeddedPage() fs.FS {
	sub, err := fs.Sub(dist, "web/dist")
	if err != nil {
		return nil
	}
	if _, err := fs.Stat(sub, indexName); err != nil {
		return nil
	}
	return sub
}

const indexName = "index.html"

// BuildHint is what to do about a page that is missing.
const BuildHint = "make web    (needs Node and npm; then build or run tezgah again)"

// missingPage is shown in its place.
const missingPage = `<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>Tezgah</title>
<h1>The page is not built</h1>
<p>This program was built without its page. In the source folder, run</p>
<pre>` + BuildHint + `</pre>
<p>The interface answers without it: docs/api.md describes the requests.</p>
<hr>
<h1 lang="tr">Sayfa derlenmemiş</h1>
<p lang="tr">Bu program sayfası olmadan derlendi. Kaynak klasöründe yukarıdaki komutu çalıştırın.</p>
</html>
`

// contentTypes by ending. Go's own table differs from machine to machine.
var contentTypes = map[string]string{
	".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".mjs": "text/javascript; charset=utf-8",
	".css": "text/css; charset=utf-8", ".json": "application/json", ".map": "application/json", ".wasm": "application/wasm",
	".svg": "image/svg+xml", ".png": "image/png", ".ico": "image/x-icon", ".woff2": "font/woff2", ".txt": "text/plain; charset=utf-8",
	".webmanifest": "application/manifest+json", ".gz": "application/gzip",
}

// packed are the forms in which a file may lie beside itself, the best first.
var packed = []struct{ ext, encoding string }{{".br", "br"}, {".gz", "gzip"}}

// page serves the files of the built page.
type page struct {
	files fs.FS // nil: there is none
	mu    sync.Mutex
	tags  map[string]string // entity tags by path
}

func newPage(files fs.FS) *page { return &page{files: files, tags: map[string]string{}} }

// ServeHTTP answers with a file, packed if the browser takes that.
func (p *page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		refuse(w, http.StatusMethodNotAllowed, "bad_request", "files of the page are only read")
		return
	}
	name := strings.TrimPrefix(path.Clean("/"+r.URL.Path), "/")
	if name == "" {
		name = indexName
	}
	if p.files == nil {
		p.missing(w, name)
		return
	}
	if err := p.send(w, r, name); err != nil {
		refuse(w, http.StatusNotFound, "not_found", "there is no page "+quote("/"+name))
	}
}

func (p *page) missing(w http.ResponseWriter, name string) {
	if name != indexName {
		refuse(w, http.StatusNotFound, "not_found", "the page is not built: "+BuildHint)
		return
	}
	w.Header().Set("Content-Type", contentTypes[".html"])
	w.Header().Set("Cache-Control", "no-store")
	io.WriteString(w, missingPage)
}

// send answers with the form of a file that suits the browser.
func (p *page) send(w http.ResponseWriter, r *http.Request, name string) error {
	h := w.Header()
	body, encoding, err := p.read(name, r.Header.Get("Accept-Encoding"))
	if err != nil {
		return err
	}
	typ, ok := contentTypes[path.Ext(name)]
	if !ok {
		typ = "application/octet-stream"
	}
	tag := p.tag(name+" "+encoding, body)
	h.Set("Content-Type", typ)
	h.Set("Vary", "Accept-Encoding")
	h.Set("ETag", tag)
	h.Set("Cache-Control", "no-cache") // ask each time; an unchanged file costs a 304
	if encoding != "" {
		h.Set("Content-Encoding", encoding)
	}
	if strings.Contains(r.Header.Get("If-None-Match"), tag) {
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	h.Set("Content-Length", strconv.Itoa(len(body)))
	if r.Method == http.MethodGet {
		w.Write(body)
	}
	return nil
}

// read finds a file, or what of it is packed beside it: in a form that is
// accepted, else unpacked.
func (p *page) read(name, accept string) (body []byte, encoding string, err error) {
	for _, form := range packed {
		if accepts(accept, form.encoding) {
			if body, err = fs.ReadFile(p.files, name+form.ext); err == nil {
				return body, form.encoding, nil
			}
		}
	}
	if body, err = fs.ReadFile(p.files, name); err == nil {
		return body, "", nil
	}
	body, gzErr := unpack(p.files, name)
	if gzErr != nil {
		return nil, "", err
	}
	return body, "", nil
}

// unpack reads a file that is there only with gzip.
func unpack(files fs.FS, name string) ([]byte, error) {
	b, err := fs.ReadFile(files, name+".gz")
	if err != nil {
		return nil, err
	}
	z, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(z)
}

// accepts reads an Accept-Encoding header (RFC 9110, section 12.5.3).
func accepts(header, encoding string) bool {
	for part := range strings.SplitSeq(header, ",") {
		name, weight, _ := strings.Cut(part, ";")
		if strings.TrimSpace(name) != encoding {
			continue
		}
		_, q, ok := strings.Cut(weight, "=")
		value, err := strconv.ParseFloat(strings.TrimSpace(q), 64)
		return !ok || err == nil && value > 0
	}
	return false
}

func (p *page) tag(key string, body []byte) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if t, ok := p.tags[key]; ok {
		return t
	}
	sum := sha256.Sum256(body)
	t := `"` + hex.EncodeToString(sum[:12]) + `"`
	p.tags[key] = t
	return t
}

// WritePage writes the page as a static folder for any web host, with the packed
// forms of its files for hosts that know how to use them. (The page unpacks its
// program itself: few hosts would send it packed.) dir must be new or empty
// unless force is set; files that the page does not have are left alone.
func WritePage(files fs.FS, dir string, force bool) (count int, sizeBytes int64, err error) {
	if files == nil {
		return 0, 0, errors.New("this program was built without its page: " + BuildHint)
	}
	if entries, err := os.ReadDir(dir); err == nil && len(entries) > 0 && !force {
		return 0, 0, fmt.Errorf("%s is not empty: choose another folder, or write into it with --force", dir)
	}
	write := func(name string, body []byte) error {
		to := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(to), 0o777); err != nil {
			return err
		}
		count++
		sizeBytes += int64(len(body))
		return os.WriteFile(to, body, 0o666)
	}
	err = fs.WalkDir(files, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.HasPrefix(d.Name(), ".") {
			return err
		}
		body, err := fs.ReadFile(files, name)
		if err != nil {
			return err
		}
		return write(name, body)
	})
	return count, sizeBytes, err
}
