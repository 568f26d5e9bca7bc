package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"tezgah/workbench"
)

const webAbout = `Write the workbench as a folder of static files that any web host can serve. The
page then runs in the visitor's tab alone: engine, training and files, on the
browser's WebGPU. Nothing is sent anywhere.

Try it here:  tezgah web build site && cd site && python3 -m http.server`

func newWeb() *cobra.Command {
	return group("web", "The workbench as static files, to run in a tab without a server", newWebBuild())
}

func newWebBuild() *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use:   "build DIR",
		Short: "Write the static folder",
		Long:  webAbout,
		Args:  exactly("the folder to write", 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			files, size, err := workbench.WritePage(workbench.EmbeddedPage(), args[0], force)
			if err != nil {
				return err
			}
			fmt.Printf("%s: %d files, %s\n", args[0], files, formatBytes(size))
			return nil
		},
	}
	cmd.Flags().BoolVar(&force, "force", false, "write into a folder that is not empty; other files stay")
	return cmd
}
