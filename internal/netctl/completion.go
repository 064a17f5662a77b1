package netctl

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/contiv/netplugin/v2/internal/base/flags"
)

// completionTimeout bounds how long a shell waits for names from the server.
const completionTimeout = 2 * time.Second

// completeCommand is the hidden command that the shells' scripts run, with the
// words of the line so far, the last of them being the one to complete. It
// prints candidates, one a line, and never fails: a shell shows no errors.
const completeCommand = "__complete"

// scripts make a shell complete netctl's lines; %s is completeCommand.
var scripts = map[string]string{
	"bash": `# bash completion for netctl: source it, or put it into /etc/bash_completion.d.
_netctl() {
    local line=${COMP_LINE:0:COMP_POINT} cur cut candidate
    local -a words
    read -ra words <<<"$line"
    [[ $line == *' ' ]] && words+=("")
    cur=${words[${#words[@]}-1]}
    cut=${cur%%"${cur##*[=:]}"} # bash takes = and : for the ends of words
    COMPREPLY=()
    while IFS= read -r candidate; do
        [[ $candidate == "$cur"* ]] && COMPREPLY+=("${candidate#"$cut"}")
    done < <(netctl %s "${words[@]:1}" 2>/dev/null)
}
complete -o default -F _netctl netctl
`,
	"zsh": `#compdef netctl
# zsh completion for netctl: put it as _netctl into a directory of $fpath.
_netctl() {
    local -a candidates
    candidates=("${(@f)$(netctl %s "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    candidates=(${candidates:#})
    if (( ${#candidates} )); then
        compadd -a candidates
    else
        _files
    fi
}
if [ "$funcstack[1]" = "_netctl" ]; then
    _netctl "$@"
else
    compdef _netctl netctl
fi
`,
	"fish": `# fish completion for netctl: put it into ~/.config/fish/completions/netctl.fish.
function __netctl_complete
    set -l words (commandline -opc) (commandline -ct)
    netctl %s $words[2..-1] 2>/dev/null
end
complete -c netctl -f -a '(__netctl_complete)'
complete -c netctl -s f -l file -r -F
`,
}

func newCompletion(base common) *command {
	c := &command{
		name:  "completion",
		short: "Print the script that makes a shell complete commands, flags and names of objects",
		examples: []string{
			"source <(netctl completion bash)",
			"netctl completion zsh > ~/.zsh/functions/_netctl",
			"netctl completion fish > ~/.config/fish/completions/netctl.fish",
		},
		args: []string{"bash|zsh|fish"},
	}
	c.run = func(_ context.Context, args []string) error {
		script, ok := scripts[args[0]]
		if !ok {
			return flags.Usagef("unknown shell %q; there are bash, zsh and fish", args[0])
		}
		_, err := fmt.Fprintf(base.out, script, completeCommand)
		return err
	}
	return c
}

// completionPoint is where on a command line the word to be completed stands.
type completionPoint struct {
	command  *command
	path     []string // of the command
	flags    *flags.Set
	valueOf  *flags.Flag // the word is this flag's value
	nth      int         // else it is this positional argument
	previous []string    // the positional arguments before it
	prefix   string      // what stands before the value in the same word: "--tenant="
	word     string      // as far as it is written
}

// findCompletionPoint follows the words of a line, setting the flags that it passes.
func findCompletionPoint(root *command, g *globals, words []string) completionPoint {
	p := completionPoint{command: root, word: words[len(words)-1]}
	help := false
	p.flags = root.allFlags(g, &help)
	done := words[:len(words)-1]
	for i := 0; i < len(done); i++ {
		w := done[i]
		switch {
		case flags.IsFlag(w):
			name, _, hasValue := strings.Cut(strings.TrimLeft(w, "-"), "=")
			d := p.flags.Lookup(name)
			switch {
			case d == nil:
			case hasValue || d.Value == "":
				_, _, _ = p.flags.Leading(done[i : i+1]) // running the line reports a wrong value
			case i+1 == len(done):
				p.valueOf = d
				return p
			default:
				_, _, _ = p.flags.Leading(done[i : i+2])
				i++
			}
		case p.command.subs != nil:
			sub := p.command.find(w)
			if sub == nil {
				return completionPoint{}
			}
			p.command, p.path = sub, append(p.path, sub.name)
			p.flags = sub.allFlags(g, &help)
		default:
			p.previous = append(p.previous, w)
			p.nth++
		}
	}
	if name, value, ok := strings.Cut(p.word, "="); ok && flags.IsFlag(p.word) {
		p.valueOf = p.flags.Lookup(strings.TrimLeft(name, "-"))
		p.prefix, p.word = name+"=", value
	}
	return p
}

// complete prints the candidates for the last of the words.
func complete(ctx context.Context, s *session, root *command, out io.Writer, words []string) error {
	if len(words) == 0 {
		words = []string{""}
	}
	p := findCompletionPoint(root, &s.globals, words)
	var found []string
	switch {
	case p.command == nil:
		return nil
	case p.valueOf != nil:
		found = p.values(ctx, s, p.valueOf.Value)
	case strings.HasPrefix(p.word, "-"):
		for _, d := range p.flags.Flags {
			found = append(found, "--"+d.Names[0])
		}
	case p.command.subs != nil:
		for _, sub := range p.command.subs {
			found = append(found, sub.name)
		}
	default:
		if args := append(slices.Clone(p.command.args), p.command.optional...); p.nth < len(args) {
			found = p.values(ctx, s, args[p.nth])
		}
	}
	var shown []string
	for _, c := range found {
		if strings.HasPrefix(c, p.word) {
			shown = append(shown, p.prefix+c)
		}
	}
	return printLines(out, shown)
}

// values returns what may stand where help shows a placeholder.
func (p completionPoint) values(ctx context.Context, s *session, placeholder string) []string {
	switch placeholder {
	case "ENCAP":
		return []string{"vlan", "vxlan"}
	case "TYPE":
		return []string{"data", "infra"}
	case "PROTOCOL":
		return []string{"icmp", "tcp", "udp"}
	case "KIND":
		var names []string
		for _, k := range append(objectKinds(), readOnlyKinds()...) {
			names = append(names, k.name)
		}
		return names
	case "MODE":
		return map[string][]string{
			"fabric-mode": {"aci", "aci-opflex", "default"}, "fwd-mode": {"bridge", "routing"}, "arp-mode": {"flood", "proxy"},
		}[p.valueOf.Names[0]]
	}
	if strings.Contains(placeholder, "|") {
		return strings.Split(placeholder, "|")
	}
	name := ""
	for _, k := range registry {
		if slices.Contains(k.placeholders, placeholder) {
			name = k.name
		}
	}
	if placeholder == "HOST" && len(p.path) > 1 && p.path[0] == "bgp" && p.path[1] != "create" {
		name = "bgp" // hosts that have settings
	}
	if placeholder == "NAME" && len(p.previous) > 0 { // get KIND NAME
		name = p.previous[0]
	}
	k, err := findShown(name)
	if err != nil {
		return nil
	}
	return p.names(ctx, s, k)
}

// names asks the server for the names of a kind of object in the line's tenant.
func (p completionPoint) names(ctx context.Context, s *session, k *objectKind) []string {
	of := p.flags.Lookup("tenant") // nil = the command takes objects of all tenants
	tenant := "default"
	if of != nil && of.Text != "" {
		tenant = of.Text
	}
	client, err := s.client()
	if err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, completionTimeout)
	defer cancel()
	list, err := k.list(ctx, client)
	if err != nil {
		return nil
	}
	var names []string
	for _, o := range list {
		switch {
		case k.perTenant && of != nil && k.tenant(o) != tenant:
		case k.within != nil && p.command.name != "get":
			if name, ok := k.within(o, p.previous); ok {
				names = append(names, name)
			}
		default:
			names = append(names, k.id(o))
		}
	}
	return names
}
