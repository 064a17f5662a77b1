package membership

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/contiv/netplugin/v2/internal/security/jointoken"
	"github.com/contiv/netplugin/v2/internal/testcluster/testenv"
)

// patient is how long anything may take on a machine that is very busy.
const patient = 3 * time.Minute

// order is the configuration of a member's process, as JSON in its environment.
type order struct {
	Config  Config
	Kill    string // the step at which it kills itself
	Recover bool
	Files   uint64 // descriptors that it may have; 0 = as many as may be
}

// said is a line of a member's process.
type said struct {
	OK    string // what was done
	Error string
	Kind  string // of the error
	Infos []Info
}

const orderVariable = "CONTIV_JOIN_TEST_ORDER"

func TestMain(m *testing.M) {
	if text := os.Getenv(orderVariable); text != "" {
		os.Exit(child(text))
	}
	os.Exit(m.Run())
}

// child is a member's process: it says how it fares on stdout and does what stdin says,
// line by line, until that ends.
func child(text string) int {
	out := json.NewEncoder(os.Stdout)
	var o order
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	o.Config.Logger = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelInfo}))
	o.Config.step = func(s string) {
		if s == o.Kill {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {} // no step further
		}
	}
	if o.Files != 0 {
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: o.Files, Max: o.Files}); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 2
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	say := func(ok string, infos []Info, err error) {
		s := said{OK: ok, Infos: infos}
		if err != nil {
			s.Error = err.Error()
			for _, k := range jointoken.Kinds {
				if s.Kind == "" && errors.Is(err, k.Kind) {
					s.Kind = k.Name
				}
			}
		}
		_ = out.Encode(s)
	}
	if o.Recover {
		r, err := Recover(ctx, o.Config)
		say("recovered without "+strings.Join(r.Lost, ","), nil, err)
		return 0
	}
	lines := make(chan string)
	go func() {
		in := bufio.NewScanner(os.Stdin)
		for in.Scan() {
			lines <- in.Text()
		}
		cancel() // the parent process has gone
		close(lines)
	}()
	m, err := Start(ctx, o.Config)
	say("ready", nil, err)
	if err != nil {
		return 0
	}
	ended := make(chan error, 1)
	go func() { ended <- m.Wait(ctx) }()
	for {
		select {
		case line, ok := <-lines:
			if !ok {
				_ = m.Close()
				return 0
			}
			do(ctx, m, line, say)
		case err := <-ended:
			if err != nil {
				say("", nil, err)
			}
			_ = m.Close()
			return 0
		}
	}
}

// do carries one line out.
func do(ctx context.Context, m *Member, line string, say func(string, []Info, error)) {
	word, arg, _ := strings.Cut(line, " ")
	switch word {
	case "token":
		life, _ := time.ParseDuration(arg) // none = the default
		text, _, err := m.Enrolment.NewToken(ctx, life)
		say(text, nil, err)
	case "list":
		all, err := m.Roster.List(ctx)
		for i := range all {
			if all[i].Err != nil { // errors do not go through JSON
				all[i].Err = nil
				all[i].Status.Leader = 0
			}
		}
		say("listed", all, err)
	case "remove":
		who, force := strings.CutPrefix(arg, "--force ")
		say("removed", nil, m.Roster.Remove(ctx, who, force))
	default:
		say("", nil, fmt.Errorf("what is %q?", line))
	}
}

// address is where the members of this process listen: other tests have other addresses.
func address(n, port int) string {
	pid := os.Getpid()
	return fmt.Sprintf("127.%d.%d.%d:%d", 1+pid>>8&0x7f, pid&0xff, n, port)
}

// node is a member as a process.
type node struct {
	t   *testing.T
	cfg Config

	cmd  *exec.Cmd
	in   io.WriteCloser
	out  chan said
	errs *strings.Builder
	done chan struct{}
	err  error // of the process, once done
}

func newNode(t *testing.T, n int, name string) *node {
	t.Helper()
	testenv.SkipShort(t)
	return &node{t: t, cfg: Config{
		Dir: filepath.Join(t.TempDir(), name), Name: name,
		Client: address(n, 23790), Peer: address(n, 23800), EnrollmentAddress: address(n, 23780),
	}}
}

// newNodeOf is a node with the directory of another, at addresses of its own.
func newNodeOf(t *testing.T, of *node, n int) *node {
	t.Helper()
	o := newNode(t, n, of.cfg.Name)
	o.cfg.Dir = of.cfg.Dir
	return o
}

// join has the node's next start join.
func (n *node) join(token string, addresses ...string) *node {
	n.cfg.Token, n.cfg.Addresses = token, addresses
	return n
}

func (n *node) run(o order) *node {
	n.t.Helper()
	o.Config = n.cfg
	text, err := json.Marshal(o)
	if err != nil {
		n.t.Fatal(err)
	}
	cmd := exec.CommandContext(context.Background(), os.Args[0])
	cmd.Env = append(os.Environ(), orderVariable+"="+string(text), "GOMAXPROCS=2")
	errs := &strings.Builder{}
	cmd.Stderr = errs
	in, err := cmd.StdinPipe()
	if err != nil {
		n.t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		n.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		n.t.Fatal(err)
	}
	out, done := make(chan said, 16), make(chan struct{})
	n.cmd, n.in, n.out, n.errs, n.done = cmd, in, out, errs, done
	go func() {
		dec := json.NewDecoder(stdout)
		for {
			var s said
			if dec.Decode(&s) != nil {
				break
			}
			out <- s
		}
		n.err = cmd.Wait()
		close(done)
	}()
	n.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-done
		if n.t.Failed() {
			n.t.Logf("%s said:\n%s", n.cfg.Name, errs)
		}
	})
	return n
}

// start starts the node.
func (n *node) start() *node { n.t.Helper(); return n.run(order{}) }

// startKilledAt starts the node and waits until it has killed itself at a step.
func (n *node) startKilledAt(step string) {
	n.t.Helper()
	n.run(order{Kill: step})
	n.killedAt(step)
}

// killedAt waits until the node has killed itself.
func (n *node) killedAt(step string) {
	n.t.Helper()
	select {
	case <-n.done:
	case s := <-n.out:
		n.t.Fatalf("%s was to be killed at %s, and said %+v", n.cfg.Name, step, s)
	case <-time.After(patient):
		n.t.Fatalf("%s has not come to %s", n.cfg.Name, step)
	}
	st, ok := n.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if !ok || !st.Signaled() || st.Signal() != syscall.SIGKILL {
		n.t.Fatalf("%s was to be killed at %s and ended with %v: %s", n.cfg.Name, step, n.err, n.errs)
	}
}

// next is what the node says next.
func (n *node) next() said {
	n.t.Helper()
	select {
	case s := <-n.out:
		return s
	case <-n.done:
		select {
		case s := <-n.out:
			return s
		default:
		}
		n.t.Fatalf("%s has ended: %v\n%s", n.cfg.Name, n.err, n.errs)
	case <-time.After(patient):
		n.t.Fatalf("%s says nothing", n.cfg.Name)
	}
	return said{}
}

// ready waits until the node is a voter.
func (n *node) ready() *node {
	n.t.Helper()
	if s := n.next(); s.Error != "" || s.OK != "ready" {
		n.t.Fatalf("%s: %+v", n.cfg.Name, s)
	}
	return n
}

// refused waits until the node says no, with all of the words.
func (n *node) refused(kind error, words ...string) {
	n.t.Helper()
	wants(n.t, n.cfg.Name, n.next(), kind, words...)
	<-n.done
}

func wants(t *testing.T, what string, s said, kind error, words ...string) {
	t.Helper()
	name := ""
	for _, k := range jointoken.Kinds {
		if k.Kind == kind { //nolint:errorlint // the kinds themselves
			name = k.Name
		}
	}
	if s.Kind != name {
		t.Errorf("%s: the error is %q, of kind %q, want kind %q", what, s.Error, s.Kind, name)
	}
	for _, w := range words {
		if !strings.Contains(s.Error, w) {
			t.Errorf("%s: the error is %q, want %q in it", what, s.Error, w)
		}
	}
}

// do has the node do something.
func (n *node) do(line string) said {
	n.t.Helper()
	n.say(line)
	return n.next()
}

func (n *node) say(line string) {
	n.t.Helper()
	if _, err := io.WriteString(n.in, line+"\n"); err != nil {
		n.t.Fatalf("%s: %v", n.cfg.Name, err)
	}
}

// must is do for what has to work, once the cluster has a leader.
func (n *node) must(line string) (done said) {
	n.t.Helper()
	eventually(n.t, n.cfg.Name+": "+line, func(context.Context) error {
		done = n.do(line)
		if done.Error != "" && done.Kind != "unavailable" {
			n.t.Fatalf("%s: %s: %s", n.cfg.Name, line, done.Error)
		}
		if done.Error != "" {
			return errors.New(done.Error)
		}
		return nil
	})
	return done
}

func (n *node) token() string { n.t.Helper(); return n.must("token").OK }

// kill kills the node.
func (n *node) kill() {
	n.t.Helper()
	_ = n.cmd.Process.Kill()
	<-n.done
}

// roles are all members with their roles, as the node lists them.
func (n *node) roles() string {
	n.t.Helper()
	var out []string
	for _, i := range n.must("list").Infos {
		out = append(out, i.Name+" "+string(i.Role))
	}
	return strings.Join(out, ", ")
}

// client connects to nodes.
func client(t *testing.T, nodes ...*node) *clientv3.Client {
	t.Helper()
	var endpoints []string
	for _, n := range nodes {
		endpoints = append(endpoints, "http://"+n.cfg.Client)
	}
	c, err := clientv3.New(clientv3.Config{Endpoints: endpoints, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// writes holds that the cluster writes, by way of the nodes, and has what is read at
// each of them.
func writes(t *testing.T, nodes ...*node) {
	t.Helper()
	value := time.Now().String()
	for i, n := range nodes {
		c := client(t, n)
		eventually(t, n.cfg.Name+" writes", func(ctx context.Context) error {
			if i == 0 {
				_, err := c.Put(ctx, "test/written", value)
				return err
			}
			r, err := c.Get(ctx, "test/written")
			if err == nil && (len(r.Kvs) != 1 || string(r.Kvs[0].Value) != value) {
				err = fmt.Errorf("%s reads %v", n.cfg.Name, r.Kvs)
			}
			return err
		})
	}
}

// eventually tries something until it works.
func eventually(t *testing.T, what string, try func(context.Context) error) {
	t.Helper()
	deadline := time.Now().Add(patient)
	for {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		err := try(ctx)
		cancel()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: %v", what, err)
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-t.Context().Done():
		}
	}
}

// eventuallyRoles waits until a node lists the members so.
func eventuallyRoles(t *testing.T, n *node, want string) {
	t.Helper()
	eventually(t, "members", func(context.Context) error {
		if got := n.roles(); got != want {
			return fmt.Errorf("they are %s, want %s", got, want)
		}
		return nil
	})
}
