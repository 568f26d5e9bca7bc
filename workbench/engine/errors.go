package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"

	"tezgah/checkpoint"
)

// apiError is an error as a client sees it.
type apiError struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	Field   string `json:"field,omitempty"` // the setting at fault
}

func (e *apiError) Error() string { return e.Message }

// statusOf are the codes with their HTTP status.
var statusOf = map[string]int{
	"bad_request": 400, "unauthorized": 401, "forbidden": 403, "not_found": 404, "exists": 409, "busy": 409,
	"too_large": 413, "no_space": 507, "device": 500, "internal": 500,
}

// fail makes an apiError.
func fail(code, format string, args ...any) *apiError {
	return &apiError{Code: code, Message: fmt.Sprintf(format, args...)}
}

// badField says which setting is wrong.
func badField(field, format string, args ...any) *apiError {
	return &apiError{"bad_request", fmt.Sprintf(format, args...), field}
}

// asAPI turns any error into one for the client.
func asAPI(err error) *apiError {
	var api *apiError
	var space *checkpoint.SpaceError
	var locked *checkpoint.LockedError
	switch {
	case errors.As(err, &api):
		return api
	case errors.As(err, &space), errors.Is(err, syscall.ENOSPC): // a tab has its quota, a disk its end
		return fail("no_space", "%v", err)
	case errors.As(err, &locked):
		return fail("busy", "%v", err)
	case errors.Is(err, os.ErrNotExist):
		return fail("not_found", "%v", err)
	case errors.Is(err, context.Canceled):
		return fail("bad_request", "canceled")
	}
	return fail("internal", "%v", err)
}

// sendError answers with an error.
func sendError(w ResponseWriter, err error) {
	e := asAPI(err)
	sendJSON(w, statusOf[e.Code], map[string]any{"error": e})
}

// sendJSON answers with one JSON value.
func sendJSON(w ResponseWriter, status int, v any) {
	b, err := json.Marshal(v)
	if err != nil { // a value of this package that JSON cannot hold
		status, b = 500, []byte(`{"error":{"code":"internal","message":"the answer could not be written as JSON"}}`)
	}
	w.Start(status, map[string]string{"Content-Type": "application/json; charset=utf-8", "Cache-Control": "no-store"})
	w.Write(append(b, '\n'))
}

// maxJSON is the limit of a JSON body. The text to encode is at most 256 KiB,
// which escapes can make six times as long.
const maxJSON = 2 << 20

// readJSON decodes the body into v and refuses fields that v does not have.
func readJSON(r Request, v any) error {
	if r.Body == nil {
		return fail("bad_request", "the request has no body, want JSON")
	}
	b, err := io.ReadAll(io.LimitReader(r.Body, maxJSON+1))
	if err != nil {
		return fail("bad_request", "the body could not be read: %v", err)
	}
	if len(b) > maxJSON {
		return fail("too_large", "the JSON body is over %d bytes", maxJSON)
	}
	dec := json.NewDecoder(strings.NewReader(string(b)))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		return jsonError(err)
	}
	if _, err := dec.Token(); err != io.EOF {
		return fail("bad_request", "the body goes on after its JSON value")
	}
	return nil
}

// jsonError names the field that a decoding error is about.
func jsonError(err error) error {
	var typ *json.UnmarshalTypeError
	if errors.As(err, &typ) {
		return badField(typ.Field, "%s is %s, want %s", typ.Field, typ.Value, typ.Type)
	}
	if name, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok {
		name = strings.Trim(name, `"`)
		return badField(name, "there is no setting %s", name)
	}
	return fail("bad_request", "the body is not the JSON that this request takes: %v", err)
}
