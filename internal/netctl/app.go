package netctl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/base/flags"
	"github.com/contiv/netplugin/v2/internal/fields"
	"github.com/contiv/netplugin/v2/internal/netctl/installer"
	"github.com/contiv/netplugin/v2/internal/security/transport"
)

// DefaultNetmaster is asked when neither --netmaster nor NETMASTER names one, and
// localNetmaster where the host name "netmaster" does not resolve.
const (
	DefaultNetmaster = "http://netmaster:9999"
	localNetmaster   = "http://127.0.0.1:9999"
)

// resolveTimeout bounds the question for the host netmaster: a resolver that is
// away must not hold a command up.
const resolveTimeout = 2 * time.Second

// reachable returns netmaster as it is given, or localNetmaster where it is the
// default and its host's name does not resolve.
func reachable(ctx context.Context, netmaster string, lookup func(context.Context, string) ([]string, error)) string {
	if netmaster != DefaultNetmaster {
		return netmaster
	}
	ctx, cancel := context.WithTimeout(ctx, resolveTimeout)
	defer cancel()
	if _, err := lookup(ctx, "netmaster"); err != nil {
		return localNetmaster
	}
	return netmaster
}

// Env is what a run of netctl needs from its process.
type Env struct {
	// Program is the name by which netctl was called. As a plugin of kubectl it is KubectlPlugin.
	Program string
	Stdin   io.Reader
	Stdout  io.Writer
	Stderr  io.Writer
	Getenv  func(string) string
	Build   api.Version // of netctl itself
	// TLS is how netmasters at https addresses are asked; zero = by the system's
	// certificate authorities.
	TLS transport.Config
}

// globals are the options that every command takes.
type globals struct {
	netmaster string
	insecure  bool
	tokenFile string
	tlsDir    string
	timeout   time.Duration // 0 = not given
	override  string        // why changes may break assertions
	login     *savedToken   // that is tried; nil = what is kept
}

// terminal is what a command reads and writes.
type terminal struct {
	out    io.Writer
	stderr io.Writer // for progress and prompts
	stdin  io.Reader
	// columns are those of the terminal that shows the output; 0 = it is none.
	columns int
}

// session is how netmaster is asked. The client is made when it is first asked for, since
// only then all flags are known.
type session struct {
	globals globals
	connect func(globals) (*api.Client, error)
	made    *api.Client
	lookup  func(context.Context, string) ([]string, error) // of a host's name; nil = the default is taken as it is
	// loginPath is where login keeps its token; empty = there is no home directory.
	loginPath string
	// planning is the command that was given --plan; nil = none.
	planning *common
}

func (s *session) client() (*api.Client, error) {
	if s.made == nil {
		g := s.globals
		if g.login == nil {
			if err := g.useLogin(s.loginPath); err != nil {
				return nil, flags.Usagef("%v", err)
			}
		}
		if s.lookup != nil {
			g.netmaster = reachable(context.Background(), g.netmaster, s.lookup)
		}
		c, err := s.connect(g)
		if err != nil {
			return nil, flags.Usagef("%v", err)
		}
		s.made = c
	}
	return s.made, nil
}

func connect(g globals, opts ...api.Option) (*api.Client, error) {
	opts = append(opts, api.WithTimeout(cmp.Or(g.timeout, api.DefaultTimeout)))
	if g.insecure {
		opts = append(opts, api.WithInsecureTLS())
	}
	if g.override != "" {
		opts = append(opts, api.WithHeader(api.OverrideHeader, g.override))
	}
	c, err := api.NewClient(g.netmaster, opts...)
	if err != nil {
		return nil, fmt.Errorf("--netmaster: %w", err)
	}
	return c, nil
}

// Run executes one command line (args without the program's name) and returns
// the process's exit code.
func Run(ctx context.Context, env Env, args []string) int {
	base := common{terminal: terminal{columns: columnsOf(env.Stdout), stdin: env.Stdin}}
	env.Stdout, env.Stderr = &safeWriter{to: env.Stdout}, &safeWriter{to: env.Stderr}
	base.out, base.stderr = env.Stdout, env.Stderr
	s := &session{globals: globals{netmaster: DefaultNetmaster}, lookup: net.DefaultResolver.LookupHost}
	base.session = s
	if home := env.Getenv("HOME"); home != "" {
		s.loginPath = filepath.Join(home, ".netctl", "config.json")
	}
	s.connect = func(g globals) (*api.Client, error) {
		login, err := loginHeader(s.loginPath, g.netmaster)
		if err != nil {
			return nil, err
		}
		shown, err := transport.OpenTokens(g.tokenFile)
		if err != nil {
			return nil, fmt.Errorf("--token-file: %w", err)
		}
		show, own, err := g.savedLogin(ctx, s.loginPath, env.TLS.APIClient)
		if err != nil {
			return nil, err
		}
		if g.tokenFile != "" {
			show = shown.Source()
		}
		login = append(login, api.WithToken(show))
		if g.tlsDir != "" {
			if own, err = g.certificate(env.Stderr); err != nil {
				return nil, fmt.Errorf("--tls-dir: %w", err)
			}
		}
		warned := map[string]bool{}
		var mu sync.Mutex
		return connect(g, append(login, api.WithTLS(own), api.WithCheck(interceptChange(s)), api.WithWarnings(func(text string) {
			mu.Lock()
			defer mu.Unlock()
			if !warned[text] {
				warned[text] = true
				fmt.Fprintf(env.Stderr, "warning: %s\n", text)
			}
		}))...)
	}
	root := newRoot(base, env)
	inv := invocation{path: root.name}
	var general flags.Set
	s.globals.bind(&general)
	err := general.FromEnv(env.Getenv)
	switch {
	case err != nil:
	case len(args) > 0 && args[0] == completeCommand:
		inv.execute = func(ctx context.Context, w io.Writer) error { return complete(ctx, s, root, w, args[1:]) }
	default:
		inv, err = root.resolve(args)
	}
	if err == nil {
		err = inv.execute(ctx, env.Stdout)
	}
	if s.made != nil {
		s.made.Close()
	}
	if err != nil {
		report(env.Stderr, inv.path, err)
	}
	return exitCode(err)
}

func (g *globals) bind(fs *flags.Set) {
	fs.String(&g.netmaster, "netmaster", "URL", "netmaster's URL, or several separated by commas").From("NETMASTER")
	fs.Bool(&g.insecure, "insecure", "do not verify the server's certificate").From("INSECURE")
	fs.String(&g.tokenFile, "token-file", "FILE", "file whose first line is the token that netmaster asks for").From("NETMASTER_TOKEN_FILE")
	fs.String(&g.tlsDir, "tls-dir", "DIR", "ask by TLS and show the certificate of a directory that 'netctl pki issue' made; its ca.crt has the authorities to trust").From("NETMASTER_TLS_DIR")
	fs.Duration(&g.timeout, "timeout", "give up on a request after this time")
	fs.Lookup("timeout").Default = api.DefaultTimeout.String()
}

func newRoot(base common, env Env) *command {
	base.tenant = "default"
	subs := []*command{
		newAciGw(base),
		newAppProfile(base),
		newApply(base),
		newAssertion(base),
		newAttach(base, env.Getenv),
		newBackup(base),
		newBgp(base),
		newCluster(base),
		newBugtool(base, env.Build),
		newCompletion(base),
		newConfirm(base),
		newDelete(base),
		newDetach(base, env.Getenv),
		newDiff(base),
		newCan(base), newTrace(base), newExposure(base), newExplain(base),
		newDoctor(base), newVerify(base),
		newEndpoint(base),
		newExport(base),
		newExtContracts(base),
		newGet(base),
		newGlobal(base),
		newGroup(base),
		newHost(base),
		newInstall(base, &installer.Machine{}),
		newLogin(base),
		newLogout(base),
		newMonitor(base),
		newNetProfile(base),
		newNetwork(base),
		newNetworkPolicy(base),
		newPKI(base),
		newPlan(base, defaultNamespace(env)),
		newPending(base),
		newPolicy(base),
		newRelease(base),
		newRevert(base),
		newService(base),
		newStatus(base),
		newStore(base),
		newTenant(base),
		newToken(base),
		newVersion(base, env.Build),
	}
	slices.SortFunc(subs, func(a, b *command) int { return strings.Compare(a.name, b.name) })
	root := &command{
		name:  "netctl",
		short: "Steers Contiv: tenants, networks, endpoint groups and policies, through netmaster.",
		examples: []string{
			"netctl tenant create blue",
			"netctl network create -tenant blue -subnet 10.1.1.0/24 -gateway 10.1.1.254 backend",
			"netctl policy create -tenant blue web-in",
			"netctl policy rule-add -tenant blue -direction in -protocol tcp -port 80 -action allow web-in 1",
			"netctl group create -tenant blue -policy web-in backend web",
			"netctl --netmaster http://10.0.0.1:9999 network ls --all",
		},
		subs:    subs,
		globals: &base.globals,
		version: func(w io.Writer) error {
			_, err := fmt.Fprintf(w, "netctl %s\n", textOrUnknown(env.Build.Version))
			return err
		},
	}
	describe(root)
	return root
}

// describe says of the flags that fill in an object's fields what the fields mean.
func describe(c *command) {
	for _, s := range c.subs {
		describe(s)
	}
	if c.fills == nil {
		return
	}
	all := fields.Of(c.fills)
	for f, member := range reflect.ValueOf(c.fills).Elem().Fields() {
		for _, d := range c.flags.Flags {
			if d.To == member.Addr().Interface() {
				field := all[jsonName(f)]
				if d.Default == field.Default {
					field.Default = "" // it is said as the default
				}
				d.Usage = field.Short(d.Usage)
			}
		}
	}
}

func textOrUnknown(s string) string {
	if s == "" {
		return "unknown"
	}
	return s
}

func report(w io.Writer, path string, err error) {
	if errors.Is(err, errDiffers) || errors.Is(err, errUnhealthy) { // stdout has said it
		return
	}
	text := message(err)
	if api.IsForbidden(err) {
		text = "'" + path + "' is refused: " + text
	}
	fmt.Fprintf(w, "netctl: %s\n", text)
	if _, ok := errors.AsType[*flags.UsageError](err); ok {
		fmt.Fprintf(w, "See '%s --help'.\n", path)
	}
}
