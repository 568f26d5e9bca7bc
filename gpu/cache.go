package gpu

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Facts that cost time to find out (what a probe saw, which tile shape is
// fastest) are kept on disk, one small JSON file per adapter, driver and
// subject. TEZGAH_CACHE names another folder than the user's cache folder;
// "off" keeps nothing. A file that cannot be read or parsed is as good as none.

// cacheFolder is where the files are, "" if none are kept.
func cacheFolder() string {
	switch folder := os.Getenv("TEZGAH_CACHE"); folder {
	case "off":
		return ""
	case "":
		base, err := os.UserCacheDir()
		if err != nil {
			return ""
		}
		return filepath.Join(base, "tezgah")
	default:
		return folder
	}
}

// fingerprint names an adapter with its driver, in a way that changes when the
// driver does.
func (a AdapterInfo) fingerprint() string {
	h := sha256.New()
	fmt.Fprintf(h, "%s\n%s\n%s\n%s\n%s\n", a.Name, a.Vendor, a.Backend, a.Driver, driverVersion())
	return hex.EncodeToString(h.Sum(nil))[:16]
}

// cachePath is the JSON file of a subject, "" if nothing is kept.
func (a AdapterInfo) cachePath(subject string) string { return a.filePath(subject, ".json") }

// filePath is the file of a subject, "" if nothing is kept.
func (a AdapterInfo) filePath(subject, ext string) string {
	folder := cacheFolder()
	if folder == "" {
		return ""
	}
	subject = strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' {
			return r
		}
		return '_'
	}, subject)
	return filepath.Join(folder, subject+"-"+a.fingerprint()+ext)
}

// LoadCache fills v (a pointer) with what SaveCache kept about this adapter
// under that name and tells whether there was something. On false v may be
// partly filled.
func (d *Device) LoadCache(name string, v any) bool { return d.info.load(name, v) }

// SaveCache keeps v for the next start on this adapter and driver. Losing it
// is harmless, so callers may ignore the error.
func (d *Device) SaveCache(name string, v any) error { return d.info.save(name, v) }

func (a AdapterInfo) load(name string, v any) bool {
	path := a.cachePath(name)
	if path == "" {
		return false
	}
	data, err := os.ReadFile(path)
	if err != nil || string(bytes.TrimSpace(data)) == "null" { // which would make a map nil
		return false
	}
	return json.Unmarshal(data, v) == nil
}

// save writes the file under another name and renames it, so that a reader
// never sees half of one.
func (a AdapterInfo) save(name string, v any) error {
	path := a.cachePath(name)
	if path == "" {
		return nil
	}
	data, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		return fmt.Errorf("gpu: cache %s: %w", name, err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("gpu: cache %s: %w", name, err)
	}
	temp, err := os.CreateTemp(filepath.Dir(path), "new-*")
	if err != nil {
		return fmt.Errorf("gpu: cache %s: %w", name, err)
	}
	_, err = temp.Write(append(data, '\n'))
	if e := temp.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = os.Rename(temp.Name(), path)
	}
	if err != nil {
		os.Remove(temp.Name())
		return fmt.Errorf("gpu: cache %s: %w", name, err)
	}
	return nil
}
