package e2e

import (
	"testing"

	"k8s.io/client-go/dynamic"

	"github.com/kubetenant/kubetenant/cluster"
	"github.com/kubetenant/kubetenant/cmd/internal/testing/localserver"
)

const definitionsFolder = "../../../docs/deploy/chart/crds"

// checkDefinitions fails the test unless each definition of the project can be used.
func checkDefinitions(t *testing.T, s *localserver.Server) {
	t.Helper()
	c, err := dynamic.NewForConfig(config(t, s, "admin"))
	if err != nil {
		t.Fatal(err)
	}
	problems, err := cluster.Definitions(t.Context(), c)
	if err != nil || len(problems) != 0 {
		t.Errorf("the definitions: %+v, %v", problems, err)
	}
}

// removeDefinitions deletes all definitions of the project.
func removeDefinitions(t *testing.T, s *localserver.Server) {
	t.Helper()
	if said, err := kubectl(t, s, "admin", "delete", "-f", definitionsFolder); err != nil {
		t.Fatal(said)
	}
}
