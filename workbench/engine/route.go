package engine

import (
	"context"
	"strings"
)

// route is one request of docs/api.md. A part of the pattern in braces stands
// for one component of the path, which the handler gets in call.args.
type route struct {
	method, pattern string
	handle          func(*Service, *call) error
}

// routes is the whole interface, in the order of docs/api.md.
var routes = []route{
	{"GET", "/api/status", (*Service).status},
	{"GET", "/api/events", (*Service).events},
	{"GET", "/api/jobs", (*Service).listJobs},
	{"DELETE", "/api/jobs/{id}", (*Service).cancelJob},

	{"GET", "/api/texts", (*Service).listTexts},
	{"PUT", "/api/texts/{name}", (*Service).putText},
	{"GET", "/api/texts/{name}", (*Service).getText},
	{"DELETE", "/api/texts/{name}", (*Service).deleteText},

	{"GET", "/api/tokenizers", (*Service).listTokenizers},
	{"POST", "/api/tokenizers", (*Service).trainTokenizer},
	{"PUT", "/api/tokenizers/{name}", (*Service).putTokenizer},
	{"GET", "/api/tokenizers/{name}", (*Service).getTokenizer},
	{"DELETE", "/api/tokenizers/{name}", (*Service).deleteTokenizer},
	{"POST", "/api/tokenizers/{name}/encode", (*Service).encode},

	{"GET", "/api/data", (*Service).listData},
	{"POST", "/api/data", (*Service).buildData},
	{"PUT", "/api/data/{name}", (*Service).putData},
	{"GET", "/api/data/{name}", (*Service).getData},
	{"DELETE", "/api/data/{name}", (*Service).deleteData},

	{"GET", "/api/runs", (*Service).listRuns},
	{"POST", "/api/runs", (*Service).createRun},
	{"POST", "/api/runs/plan", (*Service).plan},
	{"POST", "/api/runs/probe", (*Service).probe},
	{"GET", "/api/runs/{name}", (*Service).getRun},
	{"DELETE", "/api/runs/{name}", (*Service).deleteRun},
	{"POST", "/api/runs/{name}/pause", (*Service).pauseRun},
	{"POST", "/api/runs/{name}/resume", (*Service).resumeRun},
	{"POST", "/api/runs/{name}/stop", (*Service).stopRun},
	{"POST", "/api/runs/{name}/fork", (*Service).forkRun},
	{"POST", "/api/runs/{name}/profile", (*Service).profile},
	{"GET", "/api/runs/{name}/log", (*Service).runLog},
	{"GET", "/api/runs/{name}/events", (*Service).runEvents},

	{"GET", "/api/models", (*Service).listModels},
	{"PUT", "/api/models/{name}", (*Service).putModel},
	{"DELETE", "/api/models/{name}", (*Service).deleteModel},
	{"GET", "/api/models/{name}/download", (*Service).downloadModel},

	{"POST", "/api/generate", (*Service).generate},
	{"POST", "/api/chat", (*Service).chat},
	{"GET", "/v1/models", (*Service).openAIModels},
	{"POST", "/v1/completions", (*Service).completions},
	{"POST", "/v1/chat/completions", (*Service).chatCompletions},
}

// call is one request being answered.
type call struct {
	ctx     context.Context
	w       ResponseWriter
	r       Request
	args    []string // what the braces of the pattern stand for
	started bool
}

// Start, Write and Flush make call a ResponseWriter that knows whether the
// answer has begun.
func (c *call) Start(status int, header map[string]string) {
	c.started = true
	c.w.Start(status, header)
}

func (c *call) Write(p []byte) (int, error) { return c.w.Write(p) }
func (c *call) Flush() error                { return c.w.Flush() }

func (c *call) json(v any) error {
	sendJSON(c, 200, v)
	return nil
}

func (c *call) noContent() error {
	c.Start(204, nil)
	return nil
}

// Serve answers one request. It returns when the answer is complete, nobody
// listens any more, or ctx ends.
func (s *Service) Serve(ctx context.Context, w ResponseWriter, r Request) {
	rt, args, err := findRoute(r.Method, r.Path)
	if err != nil {
		sendError(w, err)
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)() // a service that closes ends what it is answering
	c := &call{ctx: ctx, w: w, r: r, args: args}
	switch err := rt.handle(s, c); {
	case err == nil || c.started:
	case strings.HasPrefix(r.Path, "/v1/"):
		e := asAPI(err)
		sendJSON(w, statusOf[e.Code], map[string]any{"error": openAIError(e)})
	default:
		sendError(w, err)
	}
}

// findRoute looks for the pattern that a request matches.
func findRoute(method, path string) (*route, []string, error) {
	var others []string
	for i := range routes {
		args, ok := match(routes[i].pattern, path)
		if ok && routes[i].method == method {
			return &routes[i], args, nil
		}
		if ok {
			others = append(others, routes[i].method)
		}
	}
	if others != nil {
		return nil, nil, fail("bad_request", "%s does not take %s, only %s", path, method, strings.Join(others, " and "))
	}
	return nil, nil, fail("not_found", "there is no %s %.200q; docs/api.md lists the requests", method, path)
}

// match compares a path with a pattern, component by component.
func match(pattern, path string) (args []string, ok bool) {
	want, got := strings.Split(pattern, "/"), strings.Split(path, "/")
	if len(want) != len(got) {
		return nil, false
	}
	for i, w := range want {
		switch {
		case strings.HasPrefix(w, "{"):
			if got[i] == "" {
				return nil, false
			}
			args = append(args, got[i])
		case w != got[i]:
			return nil, false
		}
	}
	return args, true
}

// Pattern returns the pattern of docs/api.md that a path belongs to, for
// counting requests; "other" for none.
func Pattern(path string) string {
	for i := range routes {
		if _, ok := match(routes[i].pattern, path); ok {
			return routes[i].pattern
		}
	}
	return "other"
}
