// Command pause is the first process of each pod's containers in tests. It holds the pod's
// namespaces, reaps processes that lost their parent, and ends on a signal.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	orphans := make(chan os.Signal, 1)
	signal.Notify(orphans, syscall.SIGCHLD)
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGINT, syscall.SIGTERM)
	for {
		select {
		case <-end:
			return
		case <-orphans:
			for pid := 1; pid > 0; { // until none is left that has ended
				pid, _ = syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
			}
		}
	}
}
