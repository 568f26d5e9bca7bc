package engine

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"syscall"

	"tezgah/model"
)

// spareDisk stays free beside an upload: the system and running saves need
// room too.
const spareDisk = 64 << 20

// receive streams the request's body to a temporary file and returns its path
// and size. The caller renames or removes it. A body that is cut short, over
// the limit or more than the disk holds leaves nothing.
func (s *Service) receive(c *call) (path string, sizeBytes int64, err error) {
	if c.r.Body == nil {
		return "", 0, fail("bad_request", "the request has no body, want a file")
	}
	limit, tooMuch := s.opt.MaxUpload, "too_large"
	if free := s.freeDisk(); free > 0 && free-spareDisk < limit {
		limit, tooMuch = max(0, free-spareDisk), "no_space"
	}
	refuse := func() error {
		if tooMuch == "no_space" {
			return fail(tooMuch, "the file does not fit: %s are free here", model.FormatBytes(limit))
		}
		return fail(tooMuch, "the file is over the limit of %s for one upload", model.FormatBytes(limit))
	}
	if c.r.BodyBytes > limit {
		return "", 0, refuse()
	}
	f, err := os.CreateTemp(s.path("tmp"), "upload-*")
	if err != nil {
		return "", 0, err
	}
	path = f.Name()
	n, err := io.Copy(ctxWriter{c, f, s}, io.LimitReader(c.r.Body, limit+1))
	err = errors.Join(err, f.Close())
	switch {
	case errors.Is(err, syscall.ENOSPC): // a browser's quota may end before what it says is free
		err = fail("no_space", "the file does not fit: the storage was full after %s", model.FormatBytes(n))
	case err != nil:
		err = fail("bad_request", "the upload broke off: %v", err)
	case n > limit:
		err = refuse()
	case c.r.BodyBytes >= 0 && n != c.r.BodyBytes:
		err = fail("bad_request", "the upload broke off after %d of %d bytes", n, c.r.BodyBytes)
	}
	if err != nil {
		os.Remove(path)
		return "", 0, err
	}
	return path, n, nil
}

// ctxWriter is a file that refuses writes once the request is over.
type ctxWriter struct {
	c *call
	f *os.File
	s *Service
}

func (w ctxWriter) Write(p []byte) (int, error) {
	if err := w.c.ctx.Err(); err != nil {
		return 0, err
	}
	w.s.yield(w.c.ctx)
	return w.f.Write(p)
}

// path joins components below the folder. Names have passed checkName.
func (s *Service) path(parts ...string) string {
	return filepath.Join(append([]string{s.opt.Dir}, parts...)...)
}

// tmpDir makes a new folder for something that is not whole yet.
func (s *Service) tmpDir(pattern string) (string, error) {
	return os.MkdirTemp(s.path("tmp"), pattern+"-*")
}

// sendFile answers with a file, to be saved under the given name.
func sendFile(c *call, path, contentType, name string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return err
	}
	c.Start(200, fileHeader(contentType, name, fi.Size()))
	io.Copy(c, f) // an error means that nobody listens any more
	return nil
}
