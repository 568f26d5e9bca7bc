package workbench

import (
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// tokenQuery is the query parameter that a GET request may carry the token in:
// a download that the browser itself saves cannot send a header.
const tokenQuery = "token"

// NewToken draws an access token of 128 random bits.
func NewToken() string {
	var b [16]byte
	rand.Read(b[:]) // never fails: see its documentation
	return base64.RawURLEncoding.EncodeToString(b[:])
}

// allowed decides who may ask, and answers who may not. A page of another site
// is stopped three times: a browser tells its Origin, a name that points here
// by a trick is no known Host, and it does not have the token.
func (s *Server) allowed(w http.ResponseWriter, r *http.Request) bool {
	switch {
	case !s.knownHost(r.Host):
		refuse(w, http.StatusForbidden, "forbidden", "the host "+quote(r.Host)+" is not this server's: use its address, or allow the name with --host")
	case !sameOrigin(r):
		refuse(w, http.StatusForbidden, "forbidden", "requests from pages of "+quote(r.Header.Get("Origin"))+" are not answered")
	case (isAPI(r.URL.Path) || r.URL.Path == "/metrics") && !s.hasToken(r):
		w.Header().Set("WWW-Authenticate", `Bearer realm="tezgah"`)
		refuse(w, http.StatusUnauthorized, "unauthorized", "the access token is missing or wrong: open the URL that tezgah serve printed")
	default:
		return true
	}
	return false
}

// knownHost reports whether a Host header is ours. An IP address is, because no
// name server can be made to say it; so are localhost and the names in Options.
func (s *Server) knownHost(host string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = strings.ToLower(strings.TrimSuffix(strings.Trim(host, "[]"), "."))
	return net.ParseIP(host) != nil || host == "localhost" || slices.Contains(s.opt.Hosts, host)
}

// sameOrigin reports whether a request comes from our own page, or from no page
// at all.
func sameOrigin(r *http.Request) bool {
	origin := r.Header.Get("Origin")
	if origin == "" {
		return r.Header.Get("Sec-Fetch-Site") != "cross-site" || r.Header.Get("Sec-Fetch-Mode") == "navigate" && !isAPI(r.URL.Path)
	}
	u, err := url.Parse(origin)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && strings.EqualFold(u.Host, r.Host)
}

// hasToken compares without telling by its time how much was right.
func (s *Server) hasToken(r *http.Request) bool {
	got, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok && r.Method == http.MethodGet {
		got = r.URL.Query().Get(tokenQuery)
	}
	return subtle.ConstantTimeCompare([]byte(got), []byte(s.opt.Token)) == 1
}

// refuse answers with an error in the shape of docs/api.md.
func refuse(w http.ResponseWriter, status int, code, message string) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(map[string]any{"error": map[string]string{"code": code, "message": message}})
}

func quote(s string) string {
	if len(s) > 100 {
		s = s[:100] + "…"
	}
	return `"` + s + `"`
}

// policy is what the page may do: run its own scripts and compile its own
// wasm, talk to this server, and nothing else.
const policy = "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self'; img-src 'self' data: blob:; font-src 'self'; " +
	"connect-src 'self'; worker-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// secure sets the headers of every answer.
func secure(h http.Header) {
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer") // the URL may hold the token
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Embedder-Policy", "require-corp")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
}
