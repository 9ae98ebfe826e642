// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"

	"github.com/kubetenant/kubetenant/cluster/publication"
	"github.com/kubetenant/kubetenant/internal/cli/client"
	"github.com/kubetenant/kubetenant/internal/cli/output"
	"github.com/kubetenant/kubetenant/internal/cli/publish"
	"github.com/kubetenant/kubetenant/internal/yamlfile"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// publishFlags are the flags of publish.
type publishFlags struct {
	to         []string
	all        bool
	namespaces string
	replace    bool
	hold       bool
	mode       string
	format     *output.Format
}

func newPublishCommand(flags *client.Flags) *cobra.Command {
	f := &publishFlags{format: output.NewObjectFormat()}
	cmd := &cobra.Command{
		Use:   "publish (FILE | KIND/NAME) (--to TENANT,... | --all) [--namespaces SELECTOR] [--replace] [--hold]",
		Short: "Give an object to the namespaces of tenants",
		Long: `Applies the objects of FILE in namespaces of the system tenant, and creates a
Publication for each of them. The server copies each object to the existing and
future namespaces of the tenants. No tenant can change a copy. KIND/NAME
publishes an object that is in the cluster, without a change to it. For the
standard input, set FILE to -.

--namespaces selects among the namespaces of the tenants. It sees only the label
kubernetes.io/metadata.name and the labels that a Tenant gives to its
namespaces.

If a namespace has another object of the kind and name, that object remains, and
the Publication reports a conflict. With --replace, the server deletes that
object.

The command lists what happens in the namespaces. With --dry-run, it stores
nothing, and the server validates the changes. The exit status of a dry run is 1
if there are conflicts.

You need the right to create Publications, to read the object, and to create and
update objects of its kind in every namespace. With --replace, you also need the
right to delete them. For a Role, you need its rights or the verb escalate. For
a RoleBinding, you need the rights of its role or the verb bind.`,
		Example: `  kubectl tenant publish registry.yaml --all --dry-run
  kubectl tenant publish registry.yaml --to acme,globex
  kubectl tenant publish secret/registry -n platform --all --hold
  kubectl tenant publish deny.yaml --all --namespaces kubernetes.io/metadata.name!=acme--lab`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			spec, err := f.spec()
			if err := errors.Join(err, f.checkDryRun(), f.format.Check()); err != nil {
				return err
			}
			return f.run(cmd, flags, args[0], spec)
		},
	}
	cmd.Flags().StringSliceVar(&f.to, "to", nil, "tenants whose namespaces get the object")
	cmd.Flags().BoolVar(&f.all, "all", false, "give the object to the namespaces of all tenants")
	cmd.MarkFlagsMutuallyExclusive("to", "all")
	cmd.MarkFlagsOneRequired("to", "all")
	cmd.Flags().StringVar(&f.namespaces, "namespaces", "", "label selector of namespaces (default: all namespaces of the "+
		"tenants)")
	cmd.Flags().BoolVar(&f.replace, "replace", false, "delete other objects of this kind and name in the namespaces")
	cmd.Flags().BoolVar(&f.hold, "hold", false, "refuse Pods in a new namespace until the namespace has its copy")
	cmd.Flags().StringVar(&f.mode, "dry-run", "",
		"\"server\": let the server validate the changes without storing them")
	cmd.Flags().Lookup("dry-run").NoOptDefVal = dryRunServer
	_ = cmd.RegisterFlagCompletionFunc("dry-run", outputs(dryRunServer))
	f.format.AddFlags(cmd)
	_ = cmd.RegisterFlagCompletionFunc("to", flags.CompleteTenants)
	return cmd
}

// checkDryRun returns an error if the value of --dry-run is not "server". Without requests to the
// cluster, a dry run would have no result.
func (f *publishFlags) checkDryRun() error {
	if f.mode == "" || f.mode == dryRunServer {
		return nil
	}
	return fmt.Errorf("--dry-run=%s: must be server", f.mode)
}

// spec returns the spec of each Publication, except spec.from.
func (f *publishFlags) spec() (*v1alpha1.PublicationSpec, error) {
	spec := &v1alpha1.PublicationSpec{Tenants: v1alpha1.PublicationTenants{All: f.all, IDs: f.to}, Hold: f.hold}
	var problems []error
	for _, name := range f.to {
		id, err := client.ParseTenant("--to", name)
		switch {
		case name == tenant.AnyName:
			err = errors.New("--to \"*\": set --all to publish to all tenants")
		case id.IsSystem():
			err = errors.New("--to system: namespaces of the system tenant get no copies")
		}
		problems = append(problems, err)
	}
	if f.replace {
		spec.OnConflict = v1alpha1.PublicationReplace
	}
	if f.namespaces != "" {
		selector, err := metav1.ParseToLabelSelector(f.namespaces)
		if err != nil {
			problems = append(problems, fmt.Errorf("--namespaces: %w", err))
		}
		spec.NamespaceSelector = selector
	}
	return spec, errors.Join(problems...)
}

// run publishes the objects in a file, or the stored object that an argument names.
func (f *publishFlags) run(
	cmd *cobra.Command, flags *client.Flags, named string, spec *v1alpha1.PublicationSpec,
) error {
	var data []byte
	kind, name, stored := f.stored(named)
	if !stored {
		var err error
		if data, err = readObjects(cmd, named); err != nil {
			return err
		}
	}
	c, err := flags.Cluster()
	if err != nil {
		return err
	}
	p, err := f.publisher(cmd, c)
	if err != nil {
		return err
	}
	p.Spec = *spec
	var all []*publish.Object
	if stored {
		all, err = objectInCluster(cmd, c, kind, name)
	} else if all, err = publish.Read(data, c.Namespace, client.Changed(cmd.Flags(), "namespace")); err != nil {
		err = fmt.Errorf("%s: %w", named, err)
	}
	if err != nil {
		return err
	}
	return c.Explain(f.publish(cmd, p, all))
}

// stored parses KIND/NAME. stored is false if the argument is the path of a file.
func (*publishFlags) stored(named string) (kind, name string, stored bool) {
	kind, name, found := strings.Cut(named, "/")
	if !found || kind == "" || name == "" || strings.ContainsAny(name, "/") || kind == "." || kind == ".." {
		return "", "", false
	}
	if _, err := os.Stat(named); err == nil {
		return "", "", false
	}
	return kind, name, !strings.HasSuffix(name, ".yaml") && !strings.HasSuffix(name, ".yml") &&
		!strings.HasSuffix(name, ".json")
}

// readObjects returns the content of a file, or of standard input for "-".
func readObjects(cmd *cobra.Command, file string) ([]byte, error) {
	if file == "-" {
		return io.ReadAll(cmd.InOrStdin())
	}
	return yamlfile.Read(file)
}

// objectInCluster returns a stored object. It does not read the content of the object.
func objectInCluster(cmd *cobra.Command, c *client.Cluster, kind, name string) ([]*publish.Object, error) {
	resource, _, err := resourceOf(cmd, c, &target{resource: kind, name: name})
	if err != nil {
		return nil, err
	}
	mapper, err := c.Mapper()
	if err != nil {
		return nil, err
	}
	gvk, err := mapper.KindFor(resource.WithVersion(""))
	if err != nil {
		return nil, err
	}
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(gvk)
	u.SetNamespace(c.Namespace)
	u.SetName(name)
	return []*publish.Object{{Content: u, Stored: true}}, nil
}

func (f *publishFlags) publisher(cmd *cobra.Command, c *client.Cluster) (*publish.Publisher, error) {
	p := &publish.Publisher{Writing: writing(cmd, f.mode, f.format)}
	known, done, err := requiredSettings(cmd, c, "")
	switch {
	case err == nil:
		done()
		p.Rules = publication.RulesOf(&known.Admission.Publication, nil)
		p.System = known.Authorization.SystemNamespaces
	case !errors.Is(err, errNoSettings):
		return nil, err
	}
	if p.Mapper, err = c.Mapper(); err != nil {
		return nil, err
	}
	if p.Objects, err = dynamic.NewForConfig(c.Config); err != nil {
		return nil, err
	}
	p.Metadata, err = metadata.NewForConfig(c.Config)
	return p, err
}

// publish checks all objects and sends all writes in a dry run before the first actual write.
func (f *publishFlags) publish(cmd *cobra.Command, p *publish.Publisher, all []*publish.Object) error {
	var plans []*publish.Plan
	var publications []runtime.Object
	for _, o := range all {
		if err := p.Prepare(cmd.Context(), o); err != nil {
			return err
		}
		plan, err := p.Plan(cmd.Context(), o)
		if err != nil {
			return err
		}
		plans, publications = append(plans, plan), append(publications, o.Publication())
	}
	if f.mode == "" {
		for _, o := range all {
			if err := p.Try(cmd.Context(), o); err != nil {
				return err
			}
		}
	}
	conflicts := 0
	for i, o := range all {
		if err := p.Publish(cmd.Context(), o); err != nil {
			return err
		}
		conflicts += plans[i].Conflicts()
		if f.format.IsText() {
			if err := plans[i].Print(cmd.OutOrStdout()); err != nil {
				return err
			}
		}
	}
	if err := printObjects(cmd, f.format, publications...); err != nil {
		return err
	}
	if conflicts > 0 && f.mode != "" {
		return errFailed
	}
	return nil
}
