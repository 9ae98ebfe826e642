// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
)

// Storage is the type of the volume of each replica.
type Storage string

// The types of volumes.
const (
	// StorageNone specifies that there is no volume. The configuration must have neither audit
	// streams nor usage records.
	StorageNone Storage = ""
	// StorageEmptyDir is an emptyDir volume, which is deleted with the Pod. The configuration must
	// not have usage records.
	StorageEmptyDir Storage = "EmptyDir"
	// StorageClaim is a PersistentVolumeClaim. A new Pod uses the volume of the Pod that it
	// replaces.
	StorageClaim Storage = "Claim"
)

// storageMount is the path at which the chart mounts the volume.
const storageMount = "/var/lib/kubetenant"

var (
	errStorageType = errors.New("--storage must be EmptyDir or Claim")
	errNoStorage   = errors.New("the configuration has the section audit: set --storage to EmptyDir or Claim")
	errNoClaim     = errors.New("the configuration has usage.directory: set --storage to Claim, " +
		"since unsent usage records must outlive a Pod")
)

// deployedValues sets the values of the chart that only a service in the cluster needs. They are
// the configuration, the files that the configuration names, and the volume.
func (o *Options) deployedValues(v map[string]any) error {
	files, config, err := configFiles(o.Config)
	if err != nil {
		return err
	}
	v["config"] = files
	switch o.Storage {
	case StorageNone, StorageEmptyDir, StorageClaim:
	default:
		return errStorageType
	}
	if !o.AdmissionOnly {
		if err := o.checkStorage(config); err != nil {
			return err
		}
	}
	storage, ok := v["storage"].(map[string]any)
	if o.Storage == StorageNone || !ok {
		return nil
	}
	if _, err := resource.ParseQuantity(o.StorageSize); err != nil {
		return fmt.Errorf("--storage-size must be a quantity such as 10Gi: %w", err)
	}
	storage["type"] = string(o.Storage)
	storage["size"] = o.StorageSize
	storage["className"] = o.StorageClass
	return nil
}

// checkStorage returns an error if the service would write files outside of its volume, or if the
// configuration requires another type of volume. The chart reports the same problems.
func (o *Options) checkStorage(config *configv1alpha1.TenancyConfiguration) error {
	type path struct{ field, value string }
	var written []path
	if a := config.Audit; a != nil {
		if o.Storage == StorageNone {
			return errNoStorage
		}
		written = append(written, path{"audit.directory", a.Directory})
	}
	if u := &config.Usage; u.Directory != "" {
		if o.Storage != StorageClaim {
			return errNoClaim
		}
		written = append(written, path{"usage.directory", u.Directory})
		if u.File != nil {
			written = append(written, path{"usage.file.path", u.File.Path})
		}
	}
	for _, p := range written {
		if below, ok := strings.CutPrefix(p.value, storageMount+"/"); !ok || !filepath.IsLocal(below) ||
			filepath.Clean(below) == "." {
			return fmt.Errorf("%s is %s: it must be below %s, where the chart mounts the volume", p.field, p.value, storageMount)
		}
	}
	return nil
}

// configFiles returns the configuration as tenancy.yaml, and the files that it names. The result
// is keyed by path. It also returns the decoded configuration with the paths as written.
func configFiles(config string) (map[string]string, *configv1alpha1.TenancyConfiguration, error) {
	data, err := os.ReadFile(config) // #nosec G304 -- the operator's configuration
	if err != nil {
		return nil, nil, err
	}
	files := map[string]string{"tenancy.yaml": string(data)}
	decoded, err := configv1alpha1.Decode(data)
	if err != nil {
		return nil, nil, err
	}
	decoded.Gateway = nil // the service must not have the credentials of other clusters
	for _, name := range decoded.Paths() {
		if !filepath.IsLocal(*name) {
			return nil, nil, fmt.Errorf("%s names %s: only files in the folder of the configuration "+
				"can be installed with it", config, *name)
		}
		content, err := os.ReadFile(filepath.Join(filepath.Dir(config), *name)) // #nosec G304 G703 -- as above
		if err != nil {
			return nil, nil, err
		}
		files[filepath.ToSlash(filepath.Clean(*name))] = string(content)
	}
	return files, decoded, nil
}
