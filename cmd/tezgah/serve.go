package main

import (
	"context"
	"errors"
	"fmt"
	"go/build"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"tezgah/checkpoint"
	"tezgah/gpu"
	"tezgah/op"
	"tezgah/workbench"
	"tezgah/workbench/engine"
)

type serveFlags struct {
	deviceFlags
	dir       string
	addr      string
	hosts     []string
	token     string
	open      bool
	uploadGiB int64
}

// Where serve listens unless --addr says otherwise; when the port is taken, one
// of those after it.
const (
	serveAddr  = "127.0.0.1:7777"
	morePorts  = 20
	tokenFile  = "token" // in the workbench's folder, so that its URL stays the same
	minToken   = 16
	serveAbout = `Open the workbench in a browser: text, tokenizer, training with live charts,
generation. It prints the URL, which holds an access token, and answers this
machine alone unless --addr says otherwise.

Everything lies in one folder, %s unless --dir names another. Ctrl-C
pauses what trains, with a save; the next serve finds it again. The same
requests serve programs: docs/api.md describes them, /v1 speaks OpenAI's
interface, /metrics Prometheus'.`
)

func newServe() *cobra.Command {
	f := serveFlags{dir: defaultDir()}
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "The workbench in a browser, on this machine's devices",
		Long:  fmt.Sprintf(serveAbout, f.dir),
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.run(cmd.Context(), cmd.Flags().Changed("addr"))
		},
	}
	f.deviceFlags.register(cmd)
	fl := cmd.Flags()
	fl.StringVar(&f.dir, "dir", f.dir, "folder for texts, tokenizers, token files, runs and models")
	fl.StringVar(&f.addr, "addr", serveAddr, "address to listen on (by default the next free port if 7777 is taken)")
	fl.StringArrayVar(&f.hosts, "host", nil, "a name under which browsers reach this server, such as a proxy's (repeatable)")
	fl.StringVar(&f.token, "token", "", "access token (default: one that is drawn once and kept in the folder)")
	fl.BoolVar(&f.open, "open", true, "open the browser")
	fl.Int64Var(&f.uploadGiB, "max-upload", 20, "largest upload, GiB")
	return cmd
}

// defaultDir is the workbench's folder among the user's data.
func defaultDir() string {
	dir, err := dataDir()
	if err != nil {
		return "tezgah-workbench"
	}
	return filepath.Join(dir, "tezgah")
}

func (f *serveFlags) run(ctx context.Context, addrGiven bool) error {
	if err := f.checkServe(); err != nil {
		return err
	}
	ln, err := listen(f.addr, addrGiven)
	if err != nil {
		return err
	}
	defer ln.Close()
	service, device, err := f.service()
	if err != nil {
		return err
	}
	token, err := f.accessToken()
	if err != nil {
		return errors.Join(err, service.Close(ctx))
	}
	srv, err := workbench.New(workbench.Options{Service: service, Token: token, Hosts: f.hosts, Version: version(), Device: device})
	if err != nil {
		return errors.Join(err, service.Close(ctx))
	}
	url := "http://" + urlHost(ln.Addr()) + "/?token=" + token
	f.greet(url, device, ln.Addr())
	if f.open && hasDesktop() {
		openBrowser(url)
	}
	if err := srv.Serve(ctx, ln); err != nil {
		return err
	}
	fmt.Fprintln(os.Stderr, "tezgah: closed; runs are saved")
	return nil
}

func (f *serveFlags) checkServe() error {
	if err := f.check(); err != nil {
		return err
	}
	switch {
	case strings.TrimSpace(f.dir) == "":
		return usagef("--dir is empty, want a folder")
	case f.uploadGiB < 1 || f.uploadGiB > 1<<20:
		return usagef("--max-upload is %d GiB, want 1 to 1048576", f.uploadGiB)
	case f.token != "" && (len(f.token) < minToken || strings.ContainsAny(f.token, "&#?%+ /\\\"'<>")):
		return usagef("--token: want at least %d letters and digits, or nothing for a drawn one", minToken)
	}
	if host, _, err := net.SplitHostPort(f.addr); err == nil && host != "" && net.ParseIP(host) == nil {
		f.hosts = append(f.hosts, host)
	}
	for i, h := range f.hosts {
		f.hosts[i] = strings.ToLower(h)
		if strings.ContainsAny(h, "/: ") {
			return usagef("--host is %q, want a name such as train.example.org, without port", h)
		}
	}
	return nil
}

// listen opens the port, or a later one when the usual one is taken and nobody
// asked for it.
func listen(addr string, given bool) (net.Listener, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, usagef("--addr is %q, want HOST:PORT such as %s", addr, serveAddr)
	}
	ln, err := net.Listen("tcp", addr)
	if err == nil || !addressInUse(err) {
		return ln, wrapListen(addr, err)
	}
	if given {
		return nil, fmt.Errorf("%s is in use by another program: choose another port with --addr %s", addr, net.JoinHostPort(host, "0"))
	}
	first, _ := strconv.Atoi(port)
	for n := range morePorts {
		if ln, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(first+1+n))); err == nil {
			return ln, nil
		}
	}
	return nil, fmt.Errorf("the ports %d to %d are in use: choose one with --addr", first, first+morePorts)
}

func wrapListen(addr string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("--addr %s: %w", addr, err)
}

// service opens the workbench's folder and says what computes.
func (f *serveFlags) service() (*engine.Service, string, error) {
	b, notice, err := openDevice(f.device, f.backend, f.threads)
	if err != nil {
		return nil, "", err
	}
	say(notice)
	device := b.Device()
	b.Close()
	s, err := engine.New(engine.Options{
		Dir: f.dir, Place: "server", Version: version(), Device: f.device, Threads: f.threads, MaxUpload: f.uploadGiB << 30,
		OpenBackend: func(device string) (op.Backend, string, error) { return openDevice(device, f.backend, f.threads) },
		Devices:     f.devices, Sample: sampleText(),
	})
	return s, device, err
}

// devices lists what can compute here.
func (f *serveFlags) devices() []engine.Device {
	list := []engine.Device{{ID: "cpu", Name: "CPU", Kind: "cpu"}}
	adapters, err := gpu.Adapters()
	if err != nil {
		return list
	}
	for _, a := range adapters {
		list = append(list, engine.Device{ID: deviceName(a.Index), Name: a.Name, Kind: "gpu", Software: a.Kind == gpu.Software})
	}
	return list
}

// accessToken is --token, or the folder's own, which is drawn the first time.
func (f *serveFlags) accessToken() (string, error) {
	if f.token != "" {
		return f.token, nil
	}
	path := filepath.Join(f.dir, tokenFile)
	if b, err := os.ReadFile(path); err == nil {
		if t := strings.TrimSpace(string(b)); len(t) >= minToken {
			return t, nil
		}
	}
	t := workbench.NewToken()
	if err := checkpoint.WriteBytesAtomic(path, []byte(t+"\n")); err != nil {
		return "", err
	}
	return t, os.Chmod(path, 0o600)
}

// greet prints where the workbench is.
func (f *serveFlags) greet(url, device string, addr net.Addr) {
	fmt.Printf("workbench  %s\nfolder     %s\ndevice     %s\n", url, f.dir, device)
	if workbench.EmbeddedPage() == nil {
		say("the page is not built, only the interface answers: " + workbench.BuildHint)
	}
	if tcp, ok := addr.(*net.TCPAddr); ok && !tcp.IP.IsLoopback() {
		say("listening on " + addr.String() + ": whoever can reach this address and has the token can use this machine, and the traffic is not encrypted")
	}
	fmt.Fprintln(os.Stderr, "Ctrl-C pauses what trains, with a save, and ends the workbench")
}

// urlHost is an address that a browser on this machine can open.
func urlHost(addr net.Addr) string {
	tcp, ok := addr.(*net.TCPAddr)
	if !ok || !tcp.IP.IsUnspecified() {
		return addr.String()
	}
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(tcp.Port))
}

// hasDesktop reports whether a browser can be expected: somebody sits at a
// terminal, with a screen.
func hasDesktop() bool {
	return term.IsTerminal(int(os.Stdin.Fd())) && screenHere()
}

// openBrowser asks the system to show a URL. When that fails, the printed URL
// is there.
func openBrowser(url string) {
	name, args := browserCommand(url)
	cmd := exec.Command(name, args...)
	if cmd.Start() == nil {
		go cmd.Wait()
	}
}

// sampleBytes bounds the sample text, as in the demo.
const sampleBytes = 24 << 20

// sampleText opens the sample: the page's own, or the Go installation's source.
// It is nil when there is neither.
func sampleText() func(context.Context) (io.ReadCloser, error) {
	if page := workbench.EmbeddedPage(); page != nil {
		if f, err := page.Open("sample.txt.gz"); err == nil {
			f.Close()
			return func(context.Context) (io.ReadCloser, error) { return page.Open("sample.txt.gz") }
		}
	}
	src := filepath.Join(build.Default.GOROOT, "src")
	if fi, err := os.Stat(src); build.Default.GOROOT == "" || err != nil || !fi.IsDir() {
		return nil
	}
	return func(ctx context.Context) (io.ReadCloser, error) { return joinFiles(ctx, src) }
}

// joinFiles streams the files of a folder with <|endoftext|> between them.
func joinFiles(ctx context.Context, dir string) (io.ReadCloser, error) {
	paths, err := limitText(ctx, dir, sampleBytes)
	if err != nil {
		return nil, err
	}
	r, w := io.Pipe()
	go func() {
		for _, p := range paths {
			b, err := os.ReadFile(p)
			if err == nil {
				_, err = fmt.Fprintf(w, "%s\n<|endoftext|>\n", b)
			}
			if err != nil {
				w.CloseWithError(err)
				return
			}
		}
		w.Close()
	}()
	return r, nil
}
