package attach

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
)

// Client is the Service at the other end of a unix socket. One request, one
// connection, HTTP/1.0: the shortest exchange that a Go HTTP server understands,
// without net/http, whose initialisation costs a CNI binary more than the rest
// of its start.
type Client struct {
	Socket string // path; empty = SocketPath
}

var _ Service = Client{}

const maxAnswer = 1 << 20

// Attach asks netplugin to attach; see Service.
func (c Client) Attach(ctx context.Context, r Request) (Result, error) {
	var res Result
	err := c.do(ctx, PathAttach, r, &res)
	return res, err
}

// Detach asks netplugin to detach; see Service. ErrUnreachable means that
// nothing is known to have happened: spool the request.
func (c Client) Detach(ctx context.Context, r DetachRequest) error {
	return c.do(ctx, PathDetach, r, nil)
}

// Check asks netplugin to verify an attachment; see Service.
func (c Client) Check(ctx context.Context, r CheckRequest) error {
	return c.do(ctx, PathCheck, r, nil)
}

// Publish asks netplugin to publish ports; see Service.
func (c Client) Publish(ctx context.Context, r PublishRequest) (PublishResult, error) {
	var res PublishResult
	err := c.do(ctx, PathPublish, r, &res)
	return res, err
}

// Report tells netplugin a fact; see Service.
func (c Client) Report(ctx context.Context, f Fact) error {
	return c.do(ctx, PathTell, f, nil)
}

// Collect asks netplugin to release what the runtime has lost; see Service.
func (c Client) Collect(ctx context.Context, r CollectRequest) error {
	return c.do(ctx, PathCollect, r, nil)
}

// Ready asks whether netplugin could attach now; see Service.
func (c Client) Ready(ctx context.Context) error {
	return c.do(ctx, PathReady, struct{}{}, nil)
}

func (c Client) do(ctx context.Context, path string, in, out any) error {
	request, err := json.Marshal(in)
	if err != nil {
		return fmt.Errorf("encode request: %w", err)
	}
	status, body, err := c.Exchange(ctx, path, request)
	if err != nil {
		return err
	}
	if status < 200 || status > 299 {
		return AnswerError(status, body)
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(body, out); err != nil {
		return fmt.Errorf("decode netplugin's answer: %w", err)
	}
	return nil
}

// AnswerError is the error that an answer of a status other than 2xx holds.
func AnswerError(status int, body []byte) error {
	var f Failure
	if json.Unmarshal(body, &f) != nil || f.Message == "" {
		return fmt.Errorf("netplugin answered %d: %s", status, bytes.TrimSpace(body))
	}
	return f.Err()
}

// Exchange posts a JSON body to a path of the socket, which may have an (escaped)
// query, and returns the answer's status and body (at most 1 MiB with its header).
// Every error is ErrUnreachable; an answer with a status other than 2xx is not an
// error.
func (c Client) Exchange(ctx context.Context, path string, body []byte) (status int, answer []byte, err error) {
	socket := c.Socket
	if socket == "" {
		socket = SocketPath
	}
	unreachable := func(what string, err error) error {
		return fmt.Errorf("%w at %s: %s: %w", ErrUnreachable, socket, what, err)
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", socket)
	if err != nil {
		return 0, nil, unreachable("connect", err)
	}
	defer func() { _ = conn.Close() }() // what counts has been read
	if t, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(t); err != nil {
			return 0, nil, unreachable("set deadline", err)
		}
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()

	var req bytes.Buffer
	fmt.Fprintf(&req, "POST %s HTTP/1.0\r\nHost: netplugin\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", path, len(body))
	req.Write(body)
	if _, err := conn.Write(req.Bytes()); err != nil {
		return 0, nil, unreachable("send", err)
	}
	if status, answer, err = readResponse(conn); err != nil {
		return 0, nil, unreachable("receive", err)
	}
	return status, answer, nil
}

// readResponse reads an HTTP/1.0 answer: its body ends with the connection or
// after Content-Length bytes.
func readResponse(r io.Reader) (int, []byte, error) {
	br := bufio.NewReader(io.LimitReader(r, maxAnswer))
	line, err := br.ReadString('\n')
	if err != nil {
		return 0, nil, err
	}
	proto, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
	code, _, _ := strings.Cut(rest, " ")
	status, err := strconv.Atoi(code)
	if !strings.HasPrefix(proto, "HTTP/1.") || err != nil || status < 100 || status > 999 {
		return 0, nil, fmt.Errorf("not an HTTP answer: %.60q", line)
	}
	length := -1
	for {
		line, err = br.ReadString('\n')
		if err != nil {
			return 0, nil, err
		}
		line = strings.TrimSpace(line)
		if line == "" {
			break
		}
		name, value, _ := strings.Cut(line, ":")
		if strings.EqualFold(name, "Content-Length") {
			if length, err = strconv.Atoi(strings.TrimSpace(value)); err != nil || length < 0 || length > maxAnswer {
				return 0, nil, fmt.Errorf("bad header %.60q", line)
			}
		}
	}
	if length < 0 {
		body, err := io.ReadAll(br)
		return status, body, err
	}
	body := make([]byte, length)
	if _, err := io.ReadFull(br, body); err != nil {
		return 0, nil, err
	}
	return status, body, nil
}
