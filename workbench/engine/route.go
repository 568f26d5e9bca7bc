package engine

import "context"

// Serve answers one request. It returns when the answer is complete, nobody
// listens any more, or ctx ends.
func (s *Service) Serve(ctx context.Context, w ResponseWriter, r Request) {
	sendError(w, fail("not_found", "there is no %s %s", r.Method, r.Path))
}
