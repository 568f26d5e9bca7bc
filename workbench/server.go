package workbench

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"tezgah/workbench/engine"
)

// Options are what a Server is given.
type Options struct {
	Service *engine.Service
	Token   string   // that every request to /api, /v1 and /metrics must carry; required
	Hosts   []string // names under which the server may be asked for, beside localhost and IP addresses
	Version string   // for tezgah_info
	Device  string   // for tezgah_info
	Page    fs.FS    // the built page; nil: the embedded one, which may be missing
}

// Server is the workbench over HTTP.
type Server struct {
	opt      Options
	page     *page
	requests *prometheus.CounterVec
	metrics  http.Handler
}

// New makes a Server.
func New(opt Options) (*Server, error) {
	if opt.Service == nil || opt.Token == "" {
		return nil, errors.New("workbench: Options need Service and Token")
	}
	if opt.Page == nil {
		opt.Page = EmbeddedPage()
	}
	s := &Server{opt: opt, page: newPage(opt.Page)}
	s.makeMetrics()
	return s, nil
}

// shutdownTime is how long a server that ends waits for its runs to save.
const shutdownTime = 10 * time.Minute

// Serve answers requests on ln until ctx ends. It then pauses the runs, with a
// save, and returns nil.
func (s *Server) Serve(ctx context.Context, ln net.Listener) error {
	srv := &http.Server{Handler: s, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute}
	failed := make(chan error, 1)
	go func() { failed <- srv.Serve(ln) }()
	var err error
	select {
	case err = <-failed:
	case <-ctx.Done():
	}
	last, cancel := context.WithTimeout(context.Background(), shutdownTime)
	defer cancel()
	closed := s.opt.Service.Close(last) // event streams end with the service
	return errors.Join(err, closed, srv.Shutdown(last))
}

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	secure(w.Header())
	rec := &recorder{ResponseWriter: w, status: http.StatusOK}
	pattern := "page"
	switch {
	case !s.allowed(rec, r):
		pattern = "refused"
	case r.URL.Path == "/metrics":
		pattern = "/metrics"
		s.metrics.ServeHTTP(rec, r)
	case isAPI(r.URL.Path):
		pattern = engine.Pattern(r.URL.Path)
		s.serveEngine(rec, r)
	default:
		s.page.ServeHTTP(rec, r)
	}
	s.requests.WithLabelValues(pattern, strconv.Itoa(rec.status)).Inc()
}

// isAPI reports whether a path belongs to the engine.
func isAPI(path string) bool {
	return strings.HasPrefix(path, "/api/") || strings.HasPrefix(path, "/v1/")
}

// serveEngine hands a request to the engine.
func (s *Server) serveEngine(w http.ResponseWriter, r *http.Request) {
	req := engine.Request{Method: r.Method, Path: r.URL.Path, Query: map[string]string{}, Body: r.Body, BodyBytes: r.ContentLength}
	if r.ContentLength == 0 {
		req.Body = nil
	}
	for k, v := range r.URL.Query() {
		if k != tokenQuery {
			req.Query[k] = v[len(v)-1]
		}
	}
	s.opt.Service.Serve(r.Context(), &writer{w: w, flush: http.NewResponseController(w)}, req)
}

// writer is an engine.ResponseWriter over HTTP.
type writer struct {
	w     http.ResponseWriter
	flush *http.ResponseController
}

func (w *writer) Start(status int, header map[string]string) {
	for k, v := range header {
		w.w.Header().Set(k, v)
	}
	w.w.WriteHeader(status)
}

func (w *writer) Write(p []byte) (int, error) { return w.w.Write(p) }
func (w *writer) Flush() error                { return w.flush.Flush() }

// recorder remembers the status of an answer, for counting.
type recorder struct {
	http.ResponseWriter
	status int
}

func (r *recorder) WriteHeader(status int) {
	r.status = status
	r.ResponseWriter.WriteHeader(status)
}

// Unwrap lets http.ResponseController find the connection.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }
